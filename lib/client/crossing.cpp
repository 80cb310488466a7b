#include "client/crossing.hpp"

#include "client/attempt.hpp"
#include "client/baidu_std_session.hpp"
#include "client/connection_table.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <new>
#include <utility>

namespace braid::client {

crossing::crossing(core::loop& home, connection_table& table, const connection_settings& settings,
                   core::loop& owner)
    : route(home, settings),
      table_(table),
      owner_(owner),
      self_(std::make_shared<crossing*>(this)),
      far_end_(std::make_shared<landing>(owner, settings,
                                         [&home, self = self_](std::vector<crossing_answer> answers) {
                                           home.post([self, answers = std::move(answers)]() mutable {
                                             if (*self) (*self)->receive(std::move(answers));
                                           });
                                         })) {}

crossing::~crossing() { *self_ = nullptr; }

void crossing::take(attempt& started) noexcept {
  call& of = started.owner();
  std::string why;
  if (!of.serialise(why)) {
    started.finish(outcome::local_failure(errc::bad_request), why);
    return;
  }
  // The owner counts only what has come there.
  if (!has_room(started, far_end_->on_the_way() + batch_.bytes)) return;
  batch_.bytes += started.held_bytes();
  const std::uint64_t id = pending_.insert(started);
  started.mark_sent(id);
  started.set_position(taken_++);
  batch_.requests.push_back({.id = id,
                             .method = &of.method(),
                             .payload = of.payload(),
                             .carried = of.copy_metadata(),
                             .started = of.started(),
                             .deadline = of.deadline()});
  home_.at_turn_end(*this);
}

void crossing::forget(attempt& cancelled, cancel_cause cause) noexcept {
  const std::uint64_t id = cancelled.session_id();
  if (!pending_.remove(id)) return;  // its answer has come
  if (has_sent(cancelled)) {
    batch_.forgotten.push_back({id, cause});
    home_.at_turn_end(*this);
  } else {
    batch_.requests[cancelled.position() - passed_] = {};
    batch_.bytes -= cancelled.held_bytes();
  }
}

bool crossing::has_sent(const attempt& asked) const noexcept { return asked.position() < passed_; }

void crossing::pass_on() noexcept {
  if (batch_.empty()) return;
  passed_ = taken_;
  far_end_->expect(batch_.bytes);
  const bool accepted = owner_.post([far_end = far_end_, first = !std::exchange(landed_, true),
                                     batch = std::exchange(batch_, {})]() mutable {
    if (first) core::loop::current()->service<connection_table>().keep(far_end);
    far_end->receive(std::move(batch));
  });
  if (!accepted) fail_all();
}

void crossing::receive(std::vector<crossing_answer> answers) noexcept {
  add_user();  // none of the calls below takes this object away while it is at work
  for (auto& each : answers) end(each);
  remove_user();
}

void crossing::end(crossing_answer& answer) noexcept {
  remote_ = answer.remote;
  attempt* const waiting = pending_.remove(answer.id);
  if (!waiting) {
    if (!answer.frame.empty()) table_.count_late_answer();
    return;
  }
  call& of = waiting->owner();
  of.note_remote(answer.remote);
  if (!answer.sent) waiting->mark_unsent();
  if (answer.frame.empty()) {
    waiting->finish(answer.result, answer.text);
  } else if (home_.now() >= of.deadline()) {
    table_.count_late_answer();
    of.cancel(cancel_cause::deadline);
  } else {
    read(*waiting, answer);
  }
}

void crossing::read(attempt& waiting, const crossing_answer& answer) noexcept {
  auto& frame = table_.scratch().inbound;
  try {
    if (wire::read_whole(answer.frame, frame))
      return baidu_std_session::deliver(waiting, frame, settings_.max_body_size);
    waiting.finish(outcome::local_failure(errc::bad_response),
                   fmt::format("{} sent an answer that cannot be read", remote_.to_string()));
  } catch (const std::bad_alloc&) {  // none of these throws once it has ended the attempt
    waiting.finish(outcome::local_failure(boost::asio::error::no_memory), "no memory for the response");
  }
}

void crossing::fail_all() noexcept {
  add_user();
  const auto stopped = outcome::local_failure(boost::asio::error::operation_aborted);
  while (attempt* waiting = pending_.remove_any()) waiting->finish(stopped, "the runtime stops");
  remove_user();
}

void crossing::shut_down() noexcept {
  fail_all();
  batch_.requests.clear();
  batch_.bytes = 0;
  passed_ = taken_;
}

void crossing::unused() noexcept {
  pass_on();
  unschedule();
  if (landed_) {
    owner_.post([far_end = far_end_] { core::loop::current()->service<connection_table>().drop(far_end); });
  }
  table_.erase(*this);
}

}  // namespace braid::client
