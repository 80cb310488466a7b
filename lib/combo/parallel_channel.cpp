#include <braid/parallel_channel.hpp>

#include "combo/call_group_state.hpp"
#include "combo/combo_run.hpp"
#include "combo/parallel_target.hpp"
#include "combo/parallel_verdict.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

namespace braid {
namespace combo {
namespace {

/// What the mappers made of one call: a sub call or nothing for each channel.
class parallel_plan {
 public:
  parallel_plan(const std::vector<parallel_member>& members, combo_run& run)
      : shown_(run.new_subs(members.size())), subs_(members.size()) {
    for (std::size_t i = 0; i < members.size() && !any_bad_; ++i) {
      sub_call mapped = map(members[i], i, members.size(), run);
      if (mapped.is_bad()) any_bad_ = true;
      if (mapped.is_bad() || mapped.is_skip()) continue;
      subs_[i].emplace(std::move(mapped));
      ++count_;
    }
  }

  bool any_bad() const noexcept { return any_bad_; }
  /// How many are to be sent.
  std::size_t count() const noexcept { return count_; }
  std::optional<sub_call>& at(std::size_t index) noexcept { return subs_[index]; }
  bool has(std::size_t index) const noexcept { return subs_[index].has_value(); }
  /// The mapper gave a response of its own, which lies inside the call's.
  bool in_place(std::size_t index) noexcept { return subs_[index]->request().response != nullptr; }
  std::size_t size() const noexcept { return subs_.size(); }
  /// What the call's controller will show.
  client::sub_calls& shown() noexcept { return shown_; }

 private:
  // All user code that runs before the start does so here, before anything is sent.
  sub_call map(const parallel_member& member, std::size_t index, std::size_t count, combo_run& run) noexcept {
    if (!member.mapper) return sub_call(run.method(), static_cast<const google::protobuf::Message*>(nullptr));
    try {
      sub_call mapped = member.mapper->map(index, count, run.method(), run.request(), run.response());
      if (mapped.is_bad() || mapped.is_skip()) return mapped;
      if (const auto& wanted = mapped.request(); !wanted.response && !wanted.owned_response)
        call_group_state::response_prototype(run, wanted.method);
      if (mapped.preparation()) mapped.preparation()(run.sub_control(shown_, index));
      return mapped;
    } catch (...) {
      detail::report_failure(detail::describe_current_exception(), "a call_mapper");
      return sub_call::bad();
    }
  }

  client::sub_calls& shown_;
  std::vector<std::optional<sub_call>> subs_;
  std::size_t count_ = 0;
  bool any_bad_ = false;
};

/// One parallel call: launch, judge as the sub calls end, cancel the rest, merge.
class parallel_call final : public combo_function {
 public:
  parallel_call(std::shared_ptr<const std::vector<parallel_member>> members, const parallel_limits& limits,
                parallel_plan plan)
      : members_(std::move(members)), plan_(std::move(plan)), verdict_(plan_.count(), limits) {}

  void run(combo_call& call, yield_context yield) override {
    call_group_state& subs = *launch(call);
    while (const finished_sub_call* done = subs.next(yield)) {
      if (judge(call, done->result) != parallel_verdict::decision::undecided) break;
    }
    subs.cancel(verdict_.cause());
    subs.join(yield);
    while (const finished_sub_call* done = subs.next(yield)) judge(call, done->result);
    if (verdict_.state() == parallel_verdict::decision::succeeded) merge(call, subs);
    report(call, subs);
  }

  std::string describe() const override { return "a parallel call"; }

 private:
  std::shared_ptr<call_group_state> launch(combo_call& call) {
    auto subs = std::make_shared<call_group_state>(call.state(), plan_.shown());
    call.state().add(subs);
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      auto& planned = plan_.at(i);
      if (!planned) continue;
      subs->launch(i, (*members_)[i].channel, std::move(planned->request()));
    }
    return subs;
  }

  parallel_verdict::decision judge(const combo_call& call, const outcome& sub) {
    if (const cancel_cause cause = call.state().cause(); cause != cancel_cause::none)
      verdict_.parent_cancelled(cause);
    return verdict_.add(sub);
  }

  // A response without a merger that lies inside the call's is where it belongs.
  void merge(combo_call& call, const call_group_state& subs) {
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      if (!plan_.has(i)) continue;
      const finished_sub_call sub = subs.at(i);
      if (!sub.result.succeeded()) continue;
      response_merger* const merger = (*members_)[i].merger.get();
      if (!merger && plan_.in_place(i)) continue;
      const merge_result merged = merge_one(merger, call.response(), sub.response);
      if (merged == merge_result::fail_all) verdict_.merge_failed_all();
      if (merged == merge_result::fail) verdict_.add_merge_failure();
      if (verdict_.state() == parallel_verdict::decision::failed) {
        merge_failure_ = fmt::format("the merger refused the response of sub call #{}", i);
        return;
      }
    }
  }

  static merge_result merge_one(response_merger* merger, google::protobuf::Message& response,
                                google::protobuf::Message& sub) noexcept {
    try {
      if (merger) return merger->merge(response, sub);
      if (response.GetDescriptor() != sub.GetDescriptor()) return merge_result::fail_all;
      response.MergeFrom(sub);
      return merge_result::merged;
    } catch (...) {
      detail::report_failure(detail::describe_current_exception(), "a response_merger");
      return merge_result::fail_all;
    }
  }

  void report(combo_call& call, const call_group_state& subs) const {
    const outcome result = verdict_.result();
    call.finish(result, result.succeeded() ? std::string() : text(subs));
    int attempts = 0;
    for (std::size_t i = 0; i < plan_.size(); ++i)
      if (plan_.has(i)) attempts = std::max(attempts, subs.at(i).control.attempts());
    if (call.state().of()) call.state().of()->set_path_attempts(attempts);
  }

  std::string text(const call_group_state& subs) const {
    failure_text failures;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      if (!plan_.has(i)) continue;
      const finished_sub_call sub = subs.at(i);
      if (!verdict_.is_failure(sub.result)) continue;
      const bool asked = sub.control.attempts() != 0;
      failures.add(i, asked ? sub.control.remote_side().to_string() : std::string(), sub.result.code,
                   sub.control.ErrorText());
    }
    std::string all = failures.str(verdict_.size());
    if (merge_failure_.empty()) return all;
    return all.empty() ? merge_failure_ : fmt::format("{}; {}", merge_failure_, all);
  }

  std::shared_ptr<const std::vector<parallel_member>> members_;
  parallel_plan plan_;
  parallel_verdict verdict_;
  std::string merge_failure_;
};

std::string_view refusal_text(const error_code& why) {
  if (why.value() == EPERM) return "the parallel channel has no channels";
  if (why == errc::bad_request) return "a sub call could not be mapped";
  if (why.value() == EINVAL) return "success_limit is larger than the number of sub calls";
  return "all sub calls were skipped";
}

}  // namespace

void parallel_target::start(client::call& started, const std::shared_ptr<call_target>&) noexcept {
  const parallel_limits limits{options_.fail_limit, options_.success_limit};
  auto run = combo_run::make(started, combo_run::keep_request::as_needed);
  parallel_plan plan(*members_, *run);
  const error_code refused = parallel_verdict::check(members_->size(), plan.any_bad(), plan.count(), limits);
  if (refused) {
    run->new_subs(members_->size());  // none of which was sent
    run->refuse(refused, refusal_text(refused));
    return;
  }
  combo_run::start(std::move(run), std::make_unique<parallel_call>(members_, limits, std::move(plan)));
}

bool parallel_target::reaches(const call_target& there) const noexcept {
  return call_target::reaches(there) ||
         std::any_of(members_->begin(), members_->end(),
                     [&](const parallel_member& each) { return each.channel->reaches(there); });
}

bool parallel_target::usable() const noexcept {
  const std::size_t n = members_->size();
  std::size_t down = 0;
  for (const auto& each : *members_)
    if (!each.channel->usable()) ++down;
  const auto at_least_1 = [](int limit) { return static_cast<std::size_t>(std::max(1, limit)); };
  const std::size_t bearable = options_.fail_limit ? std::min(n, at_least_1(*options_.fail_limit)) : n;
  return down < bearable && n - down >= at_least_1(options_.success_limit.value_or(1));
}

int parallel_target::capacity() const noexcept {
  if (members_->empty()) return 0;
  int least = std::numeric_limits<int>::max();
  for (const auto& each : *members_) least = std::min(least, each.channel->capacity());
  return least;
}

}  // namespace combo

parallel_channel::parallel_channel(const runtime& rt, parallel_channel_options options)
    : parallel_channel(std::make_shared<combo::parallel_target>(rt.core(), options)) {}

parallel_channel::parallel_channel(std::shared_ptr<combo::parallel_target> target) noexcept
    : channel_base(target), parallel_(std::move(target)) {}

parallel_channel::~parallel_channel() = default;

void parallel_channel::add_channel(std::shared_ptr<channel_base> channel, std::shared_ptr<call_mapper> mapper,
                                   std::shared_ptr<response_merger> merger) {
  add_channel(channel.get(), std::move(mapper), std::move(merger));
}

void parallel_channel::add_channel(channel_base* channel, std::shared_ptr<call_mapper> mapper,
                                   std::shared_ptr<response_merger> merger) {
  if (!channel) throw std::invalid_argument("braid: a parallel channel needs a channel, not a null pointer");
  if (channel->target()->reaches(*parallel_))
    throw std::invalid_argument("braid: a parallel channel cannot be a sub channel of itself");
  parallel_->add({channel->target(), std::move(mapper), std::move(merger)});
}

std::size_t parallel_channel::channel_count() const noexcept { return parallel_->size(); }

}  // namespace braid
