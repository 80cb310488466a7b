#pragma once

#include <boost/intrusive/set.hpp>

#include <cstdint>

namespace braid::server_side {

/// A call that can be found by the id that its client gave it.
class indexed_call {
 public:
  explicit indexed_call(std::int64_t id) noexcept : id_(id) {}
  std::int64_t id() const noexcept { return id_; }
  void leave_index() noexcept {
    if (place_.is_linked()) place_.unlink();
  }

 protected:
  ~indexed_call() = default;

 private:
  friend struct call_index_base;
  boost::intrusive::set_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> place_;
  std::int64_t id_;
};

struct call_index_base {
  struct id_of {
    using type = std::int64_t;
    type operator()(const indexed_call& call) const noexcept { return call.id(); }
  };
  using place =
      boost::intrusive::member_hook<indexed_call, decltype(indexed_call::place_), &indexed_call::place_>;
};

/// The running calls of a connection by id. Clients choose the ids: a tree costs the same for all choices,
/// and several calls may have the same.
using call_index = boost::intrusive::multiset<indexed_call, call_index_base::place,
                                              boost::intrusive::key_of_value<call_index_base::id_of>,
                                              boost::intrusive::constant_time_size<false>>;

}  // namespace braid::server_side
