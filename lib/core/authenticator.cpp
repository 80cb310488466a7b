#include <braid/authenticator.hpp>

namespace braid {

boost::system::result<std::string> authenticator::generate_credential(const endpoint&, yield_context) {
  return error_code(errc::auth_failed);
}

boost::system::result<auth_context> authenticator::verify_credential(std::string_view, const endpoint&,
                                                                     yield_context) {
  return error_code(errc::auth_failed);
}

}  // namespace braid
