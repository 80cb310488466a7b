#include "client/connection.hpp"

#include <braid/authenticator.hpp>

#include "client/baidu_std_session.hpp"
#include "client/connection_table.hpp"
#include "net/loop_network.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <array>
#include <utility>

namespace braid::client {
namespace {

constexpr std::size_t flush_threshold = std::size_t{256} * 1024;

error_code errno_code(int value) { return {value, boost::system::system_category()}; }

// A code that calls may have: errnos that the wire has no number for become 1009.
error_code call_code(const error_code& why) { return from_wire(to_wire(why)); }

// The same for a failed connect: where a unix socket is not there at all, nobody listens.
error_code connect_code(const error_code& why) {
  return call_code(why == errno_code(ENOENT) ? errno_code(ECONNREFUSED) : why);
}

// What happened, with the errno where the code does not tell it.
std::string describe(const error_code& why) {
  if (call_code(why) == why || why.category() != boost::system::system_category()) return why.message();
  return fmt::format("{} (errno {})", why.message(), why.value());
}

constexpr std::size_t largest_credential = wire::default_max_meta_size / 2;

// Why there is no credential to send; empty: there is one.
std::string what_failed(core::coroutine_end how, const std::string& thrown, std::chrono::nanoseconds limit,
                        const boost::system::result<std::string>& made) {
  switch (how) {
    case core::coroutine_end::threw:
      return thrown.empty() ? "an exception without a text" : thrown;
    case core::coroutine_end::timed_out:
      return fmt::format("it took longer than auth_timeout, {} ms",
                         std::chrono::duration_cast<std::chrono::milliseconds>(limit).count());
    case core::coroutine_end::refused:
      return "no memory for a coroutine";
    case core::coroutine_end::returned:
      break;
  }
  if (!made) return made.error().message();
  if (made->size() <= largest_credential) return {};
  return fmt::format("{} bytes are over the limit of {}", made->size(), largest_credential);
}

}  // namespace

connection::connection(core::loop& home, connection_table& table, const connection_settings& settings)
    : route(home, settings),
      table_(table),
      queue_(settings.max_unsent_bytes),
      reading_(*this, home, settings.progress_timeout) {}

connection::~connection() = default;

void connection::take(attempt& started) noexcept {
  if (state_ == state::open) {
    send(started);
    return;
  }
  call& of = started.owner();
  if (!of.has_payload()) {
    // The request is the caller's only until the initiating function returns.
    std::string why;
    if (!of.serialise(why)) {
      started.finish(outcome::local_failure(errc::bad_request), why);
      return;
    }
  }
  if (!has_room(started, waiting_bytes_)) return;
  waiting_bytes_ += started.held_bytes();
  waiting_.push_back(started);
  if (state_ == state::idle) connect();
}

void connection::forget(attempt& cancelled, cancel_cause cause) noexcept {
  if (cancelled.sent()) {
    session_->forget(cancelled, cause);
    flush_later();
  } else if (cancelled.is_linked()) {
    waiting_bytes_ -= cancelled.held_bytes();
  }
}

attempt& connection::take_waiting() noexcept {
  attempt& next = waiting_.front();
  waiting_.pop_front();
  waiting_bytes_ -= next.held_bytes();
  return next;
}

void connection::send(attempt& started) noexcept {
  started.set_position(queue_.bytes_appended_total());
  session_->start(started);
  // Outside a turn, where the program's own code starts a call, a write that fails would end others in here.
  if (queue_.size() >= flush_threshold && !blocked_ && home_.in_turn()) {
    flush();
  } else {
    home_.at_turn_end(*this);
  }
}

void connection::connect() noexcept {
  if (settings_.connect_timeout.count() >= 0) home_.arm(timer_, home_.after(settings_.connect_timeout));
  if (settings_.server.type() == endpoint::kind::host_name) {
    resolve();
  } else {
    connect_to(settings_.server);
  }
}

void connection::resolve() noexcept {
  state_ = state::resolving;
  core::loop& home = home_;
  lookup_ = net::resolver_of(home).resolve(
      settings_.server, [&home](std::function<void()> deliver) { home.post(std::move(deliver)); },
      [this](const error_code& ec, net::resolved addresses) {
        if (ec || addresses.empty()) {
          connect_failed(errno_code(EHOSTDOWN), fmt::format("the name {} cannot be resolved: {}",
                                                            settings_.server.host(), ec.message()));
          return;
        }
        addresses_.assign(addresses.rbegin(), addresses.rend());
        connect_next();
      });
}

void connection::connect_next() noexcept {
  const endpoint to(addresses_.back());
  addresses_.pop_back();
  connect_to(to);
}

void connection::connect_to(const endpoint& to) noexcept {
  state_ = state::connecting;
  remote_ = to;
  const net::transport_options options{.keepalive = settings_.keepalive,
                                       .user_timeout = settings_.tcp_user_timeout};
  connecting_ = net::network_of(home_).connect(home_, to, options, *this);
}

void connection::on_connect_failed(const error_code& why) {
  if (!addresses_.empty()) {
    connect_next();
    return;
  }
  connect_failed(connect_code(why),
                 fmt::format("connecting to {} failed: {}", remote_.to_string(), describe(why)));
}

void connection::connect_timed_out() noexcept {
  connect_failed(errno_code(ETIMEDOUT),
                 fmt::format("connecting to {} took longer than the connect timeout", remote_.to_string()));
}

void connection::connect_failed(const error_code& why, std::string_view text) noexcept {
  end_connecting();
  state_ = state::idle;
  broken(why, text);
}

void connection::end_connecting() noexcept {
  timer_.cancel();
  lookup_.abandon();
  connecting_.reset();
  addresses_.clear();
}

void connection::on_connected(std::unique_ptr<net::transport> connected) {
  end_connecting();
  blocked_ = false;
  session_ = std::make_unique<baidu_std_session>(home_, queue_, settings_.max_body_size, table_);
  transport_ = std::move(connected);
  transport_->start(*this);
  if (settings_.auth) {
    authenticate();
  } else {
    open();
  }
}

void connection::authenticate() noexcept {
  using credential = boost::system::result<std::string>;
  state_ = state::authenticating;
  const auto limit = settings_.auth_timeout;
  auto made = std::make_shared<credential>(error_code(errc::auth_failed));
  const auto make = [auth = settings_.auth, server = remote_, made](yield_context yield) {
    *made = auth->generate_credential(server, yield);
  };
  const auto ended = [this, made, limit](core::coroutine_end how, const std::string& thrown) {
    const std::string why = what_failed(how, thrown, limit, *made);
    if (!why.empty()) {
      connect_failed(errc::auth_failed, fmt::format("no credential for {}: {}", remote_.to_string(), why));
      return;
    }
    session_->set_credential(std::move(**made));
    open();
  };
  authentication_.start(home_, fmt::format("making a credential for {}", remote_.to_string()),
                        limit.count() < 0 ? core::time_point::max() : home_.after(limit), make, ended);
}

void connection::open() noexcept {
  state_ = state::open;
  send_waiting();
}

void connection::send_waiting() noexcept {
  add_user();  // none of the calls below takes this object away while it is at work
  while (!waiting_.empty()) {
    attempt& next = take_waiting();
    next.owner().note_remote(remote_);
    send(next);
  }
  remove_user();
}

void connection::on_read(std::size_t size) {
  add_user();
  if (size == 0) {
    broken(errc::eof, fmt::format("{} closed the connection", remote_.to_string()));
  } else if (const session_failure failure = session_->on_read(size); failure.code) {
    broken(failure.code, failure.text);
  } else {
    flush_later();  // what the session has to say by itself
    watch_reading(size);
  }
  remove_user();
}

// Each KiB of an incomplete answer has its time to come, and so has the rest of it: what never comes would
// hold up all later answers.
void connection::watch_reading(std::size_t arrived) noexcept {
  const bool another = std::exchange(answers_seen_, session_->answers_read()) != session_->answers_read();
  const bool awaited = session_->mid_answer();
  if (another || !awaited) reading_.cancel();
  if (awaited) reading_.watch(arrived);
}

void connection::stalled() noexcept {
  add_user();
  broken(errno_code(ETIMEDOUT),
         fmt::format("{} sent part of an answer and then nothing for progress_timeout, {} ms",
                     remote_.to_string(), settings_.progress_timeout.count()));
  remove_user();
}

void connection::on_writable() {
  blocked_ = false;
  flush();
}

void connection::on_broken(const error_code& why) {
  add_user();
  broken(call_code(why), fmt::format("the connection to {} broke: {}", remote_.to_string(), describe(why)));
  remove_user();
}

void connection::flush_later() noexcept {
  if (!queue_.empty()) home_.at_turn_end(*this);
}

void connection::flush() noexcept {
  std::array<iovec, 64> pieces;
  while (!queue_.empty() && transport_ && !blocked_) {
    const std::size_t count = queue_.gather(pieces);
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
    error_code ec;
    const std::size_t taken = transport_->write_some(std::span(pieces.data(), count), ec);
    queue_.consume(taken);
    if (ec) {
      on_broken(ec);
      return;
    }
    if (taken < wanted) blocked_ = true;
  }
}

void connection::broken(const error_code& why, std::string_view text) noexcept {
  state_ = state::idle;
  authentication_.abandon(cancel_cause::peer_gone);
  if (transport_) transport_->close();
  transport_.reset();
  reading_.cancel();
  answers_seen_ = 0;
  add_user();
  // What fails here may start calls that connect anew only later, from the ready queue: the lists are final.
  // One that ends may cancel others of the same session, which is therefore there until all have.
  if (session_) session_->fail(why, text);
  session_.reset();
  queue_.clear();
  unschedule();
  while (!waiting_.empty()) take_waiting().finish(outcome::local_failure(why), text);
  remove_user();
}

void connection::shut_down() noexcept {
  connect_failed(boost::asio::error::operation_aborted, "the runtime stops");
}

// A credential that is being made is abandoned at the turn's end: what its cancellation wakes would run here
// and now where no turn runs.
void connection::unused() noexcept {
  flush();  // the cancel of the last call may be in there
  end_connecting();
  unschedule();
  if (transport_) transport_->close();
  reading_.cancel();
  table_.erase(*this);
}

}  // namespace braid::client
