#include "net/stream_listener.hpp"

#include "core/loop.hpp"
#include "net/socket_address.hpp"
#include "net/socket_file.hpp"
#include "net/socket_options.hpp"
#include "net/stream_transport.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include <sys/socket.h>

#include <chrono>

namespace braid::net {
namespace {

using acceptor = boost::asio::basic_socket_acceptor<stream_protocol, boost::asio::io_context::executor_type>;

/// What accept() says of a connection that is gone already (see accept(2)), rather than of the listener.
bool concerns_one_connection(int error) noexcept {
  switch (error) {
    case ECONNABORTED:
    case EINTR:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

/// The part of a listener that a pending handler keeps alive.
class accept_state : public boost::intrusive_ref_counter<accept_state, boost::thread_unsafe_counter> {
 public:
  accept_state(core::loop& home, const transport_options& options)
      : home_(home), acceptor_(home.executor()), options_(options), retry_(this) {}

  void open(const endpoint& at, error_code& ec);
  void start(accept_events& events) {
    events_ = &events;
    await();
  }
  void close() noexcept {
    events_ = nullptr;
    if (retry_.cancel()) home_.release_work();
    file_.remove();  // while it listens, so that nobody takes the file for an abandoned one
    error_code ignored;
    acceptor_.close(ignored);
  }
  const endpoint& local() const noexcept { return local_; }

 private:
  static constexpr auto pause_without_resources = std::chrono::milliseconds(50);
  static constexpr int most_at_once = 64;  // then the loop's other work gets its turn

  struct retry_timer : core::timer_node {
    explicit retry_timer(accept_state* owner)
        : timer_node([](timer_node& node) { static_cast<retry_timer&>(node).owner->go_on(); }),
          owner(owner) {}
    accept_state* owner;
  };

  void await() {
    acceptor_.async_wait(acceptor::wait_read,
                         [self = boost::intrusive_ptr(this)](const error_code& ec) mutable {
                           const core::entry here(self->home_);
                           const boost::intrusive_ptr kept = std::move(self);  // let go inside the entry
                           if (!kept->events_) return;
                           core::turn in_turn(kept->home_);
                           if (ec) return kept->fail(ec);
                           kept->accept_all();
                         });
  }
  bool is_unix() const noexcept { return local_.type() == endpoint::kind::unix_path; }
  void listen_tcp(error_code& ec);
  void accept_all();
  void deliver(int accepted, const stream_protocol::endpoint& from);
  void fail(const error_code& why) {
    home_.hold_work();  // what listens is in use, also while it waits for a timer alone
    home_.arm(retry_, home_.after(pause_without_resources));
    events_->on_accept_failed(why);
  }
  void go_on() {
    home_.release_work();
    await();
  }

  core::loop& home_;
  acceptor acceptor_;
  transport_options options_;
  endpoint local_;
  socket_file file_;
  accept_events* events_ = nullptr;
  retry_timer retry_;
};

void accept_state::open(const endpoint& at, error_code& ec) {
  local_ = at;
  open_socket(acceptor_, protocol_of(at), ec);
  if (ec) return;
  if (acceptor_.non_blocking(true, ec)) return;
  if (is_unix()) return file_.listen(acceptor_.native_handle(), at, ec);
  listen_tcp(ec);
}

void accept_state::listen_tcp(error_code& ec) {
  if (acceptor_.set_option(acceptor::reuse_address(true), ec)) return;
  if (local_.address().is_v6() && acceptor_.set_option(boost::asio::ip::v6_only(true), ec)) return;
  if (acceptor_.bind(socket_address(local_), ec)) return;
  if (acceptor_.listen(acceptor::max_listen_connections, ec)) return;
  local_ = local_tcp_endpoint(acceptor_.native_handle());
}

void accept_state::accept_all() {
  for (int i = 0; i < most_at_once && events_; ++i) {
    stream_protocol::endpoint from;
    auto size = static_cast<socklen_t>(from.capacity());
    const int accepted =
        ::accept4(acceptor_.native_handle(), from.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted >= 0) {
      from.resize(size);
      deliver(accepted, from);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (!concerns_one_connection(errno)) {
      return fail(last_error());
    }
  }
  if (events_) await();
}

void accept_state::deliver(int accepted, const stream_protocol::endpoint& from) {
  if (!is_unix()) apply_tcp(options_, accepted);
  core::loop& home = events_->next_loop();
  const endpoint remote = is_unix() ? local_ : tcp_endpoint(from);
  events_->on_accepted(home, std::make_unique<stream_transport>(new stream_socket(home, accepted, remote)));
}

class stream_listener final : public listener {
 public:
  explicit stream_listener(boost::intrusive_ptr<accept_state> state) noexcept : state_(std::move(state)) {}
  ~stream_listener() override { state_->close(); }
  const endpoint& local() const noexcept override { return state_->local(); }
  void start(accept_events& events) override { state_->start(events); }

 private:
  boost::intrusive_ptr<accept_state> state_;
};

}  // namespace

std::unique_ptr<listener> listen_stream(core::loop& home, const endpoint& at,
                                        const transport_options& options, error_code& ec) {
  boost::intrusive_ptr state(new accept_state(home, options));
  ec = {};
  state->open(at, ec);
  if (ec) return nullptr;
  return std::make_unique<stream_listener>(std::move(state));
}

}  // namespace braid::net
