#include "net/socket_file.hpp"

#include "net/socket_address.hpp"
#include "net/socket_options.hpp"

#include <boost/asio/error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

namespace braid::net {
namespace {

class descriptor {
 public:
  explicit descriptor(int opened) noexcept : opened_(opened) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (opened_ >= 0) ::close(opened_);
  }
  int get() const noexcept { return opened_; }

 private:
  const int opened_;
};

/// Keeps other servers of ours from replacing a file in the same directory meanwhile: one that is bound and
/// does not listen yet looks as if nobody used it. Who cannot get the lock soon, or may not read the
/// directory, goes on without.
class directory_lock {
 public:
  explicit directory_lock(const std::string& path) noexcept
      : directory_(::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int tries = 100;
    constexpr timespec pause{0, 1'000'000};
    for (int i = 0; i < tries && ::flock(directory_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
         ++i)
      ::nanosleep(&pause, nullptr);
  }

 private:
  static std::string directory_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
  }

  const descriptor directory_;  // whose end unlocks it
};

bool bind_to(int socket, const stream_protocol::endpoint& address, error_code& ec) noexcept {
  ec = {};
  if (::bind(socket, address.data(), static_cast<socklen_t>(address.size())) == 0) return true;
  ec = last_error();
  return false;
}

/// Whether nobody will ever answer there: the kernel refuses a socket file that no socket is bound to.
bool is_abandoned(const stream_protocol::endpoint& address) noexcept {
  const descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) return false;
  const int connected = ::connect(probe.get(), address.data(), static_cast<socklen_t>(address.size()));
  return connected != 0 && errno == ECONNREFUSED;
}

/// Makes room for a new file; false, with `ec` set, where the old one must stay.
bool remove_abandoned(const std::string& path, const stream_protocol::endpoint& address,
                      error_code& ec) noexcept {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    ec = last_error();
    return errno == ENOENT;
  }
  if (!S_ISSOCK(found.st_mode)) {
    ec = {ENOTSOCK, boost::system::system_category()};
    return false;
  }
  if (!is_abandoned(address)) {
    ec = boost::asio::error::address_in_use;
    return false;
  }
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return true;
  ec = last_error();
  return false;
}

}  // namespace

void socket_file::listen(int socket, const endpoint& at, error_code& ec) {
  const std::string path = at.host();
  const auto address = socket_address(at);
  const auto start_listening = [&] {
    if (::listen(socket, SOMAXCONN) != 0) ec = last_error();
  };
  if (path.front() == '@') {
    if (bind_to(socket, address, ec)) start_listening();
    return;
  }
  const directory_lock alone(path);
  if (!bind_to(socket, address, ec)) {
    if (ec != boost::asio::error::address_in_use || !remove_abandoned(path, address, ec)) return;
    if (!bind_to(socket, address, ec)) return;
  }
  remember(path, ec);
  if (!ec) start_listening();
  if (ec) remove();
}

// Absolute, since the program may change its directory before the end.
void socket_file::remember(const std::string& path, error_code& ec) {
  struct stat made {};
  if (::lstat(path.c_str(), &made) != 0) {
    ec = last_error();
    return;
  }
  std::error_code failed;
  const auto absolute = std::filesystem::absolute(path, failed);
  path_ = failed ? path : absolute.string();
  device_ = made.st_dev;
  inode_ = made.st_ino;
}

void socket_file::remove() noexcept {
  if (path_.empty()) return;
  struct stat found {};
  if (::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_)
    ::unlink(path_.c_str());
  path_.clear();
}

}  // namespace braid::net
