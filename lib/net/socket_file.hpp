#pragma once

#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include <sys/types.h>

#include <string>

namespace braid::net {

/// The file of a listening unix socket: made by listen(), removed by remove(), which the destructor calls.
class socket_file {
 public:
  socket_file() = default;
  socket_file(const socket_file&) = delete;
  socket_file& operator=(const socket_file&) = delete;
  ~socket_file() { remove(); }

  /// Binds an open socket to the path of `at`, or to its abstract name, and makes it listen.
  ///
  /// A socket file on which nobody listens any more is replaced. Errors: address_in_use: somebody listens
  /// there, or has a socket of another type; ENOTSOCK: what is there is no socket, and stays; those of
  /// bind(2).
  void listen(int descriptor, const endpoint& at, error_code& ec);

  /// Removes the file, unless it is gone or another has taken its place.
  void remove() noexcept;

 private:
  void remember(const std::string& path, error_code& ec);

  std::string path_;  // absolute; empty: there is none
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace braid::net
