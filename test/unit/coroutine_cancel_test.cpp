#include "coroutine_fixture.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <optional>

using namespace std::chrono_literals;
using namespace coroutine_fixture;

namespace {

/// A coroutine of `rt` and the signal that cancels it; emitted on the loop, so that no step races.
class cancellable {
 public:
  template <typename Function>
  void start(yield_context parent, Function function) {
    braid::spawn(parent, std::move(function),
                 asio::bind_cancellation_slot(signal_.slot(), [this](error_code ec) {
                   ended_ = ec;
                   if (joiner_) joiner_.call();
                 }));
  }
  void cancel(asio::cancellation_type type = asio::cancellation_type::terminal) { signal_.emit(type); }
  bool ended() const { return ended_.has_value(); }
  error_code join(yield_context yield) {
    if (!ended_) joiner_.wait(yield);
    return *ended_;
  }

 private:
  asio::cancellation_signal signal_;
  parked<> joiner_;
  std::optional<error_code> ended_;
};

/// Lets everything that is ready run.
void let_others_run(yield_context yield) {
  for (int i = 0; i < 5; ++i) asio::post(yield.get_executor(), yield);
}

}  // namespace

TEST_CASE("cancel: before an await the operation is not started") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    int started = 0;
    bool go = false;
    child.start(yield, [&](yield_context self) {
      while (!go) asio::post(self.get_executor(), self);
      CHECK(self.cancelled() == braid::cancel_cause::user);
      error_code ec;
      const auto count = [&](auto handler) {
        ++started;
        std::move(handler)(error_code());
      };
      initiate<void(error_code)>(count, self[ec]);
      CHECK(ec == aborted);
      braid::sleep_for(1h, self[ec]);
      CHECK(ec == aborted);
      ec.clear();
      braid::sleep_for(0ms, self[ec]);
      CHECK(ec == aborted);
      initiate<void(error_code)>(count, self);
    });
    let_others_run(yield);
    child.cancel();
    let_others_run(yield);
    go = true;
    CHECK(child.join(yield) == aborted);
    CHECK(started == 0);
  });
}

TEST_CASE("cancel: during an await the operation gets terminal") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    asio::cancellation_type got = asio::cancellation_type::none;
    child.start(yield, [&](yield_context self) {
      initiate<void(error_code)>(
          [&](auto handler) {
            auto slot = asio::get_associated_cancellation_slot(handler);
            auto kept = std::make_shared<decltype(handler)>(std::move(handler));
            slot.assign([&, kept](asio::cancellation_type type) {
              got = type;
              (*kept)(refused);  // at once, inside the emit
            });
          },
          self);
    });
    let_others_run(yield);
    CHECK_FALSE(child.ended());
    child.cancel(asio::cancellation_type::total);
    CHECK(child.join(yield) == refused);
    CHECK(got == asio::cancellation_type::terminal);
  });
}

TEST_CASE("cancel: a foreign operation in flight ends with operation_aborted") {
  in_coroutine([](yield_context yield) {
    for (const bool bound : {false, true}) {
      cancellable child;
      child.start(yield, [&](yield_context self) {
        asio::steady_timer timer(self.get_executor(), 1h);
        if (bound) {
          auto [ec] = timer.async_wait(asio::as_tuple(asio::bind_executor(self.get_executor(), self)));
          CHECK(ec == aborted);
          throw boost::system::system_error(ec);
        }
        timer.async_wait(self);
      });
      let_others_run(yield);
      child.cancel();
      CHECK(child.join(yield) == aborted);
    }
  });
}

TEST_CASE("cancel: a slot bound by hand replaces the coroutine's") {
  in_coroutine([](yield_context yield) {
    asio::cancellation_signal own;
    asio::steady_timer timer(yield.get_executor(), 1h);
    asio::post(yield.get_executor(), [&] { own.emit(asio::cancellation_type::total); });
    error_code ec;
    timer.async_wait(asio::bind_cancellation_slot(own.slot(), yield[ec]));
    CHECK(ec == aborted);
    CHECK(yield.cancelled() == braid::cancel_cause::none);
  });
}

TEST_CASE("cancel: after an await no stale handler is left in the slot") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    bool go = false;
    child.start(yield, [&](yield_context self) {
      for (const bool throwing : {false, true}) {
        // Freed memory that an emit would touch: the sanitizers and the counter would tell.
        auto object = std::make_unique<int>(0);
        const auto leaves_a_handler = [&](auto handler) {
          asio::get_associated_cancellation_slot(handler).assign(
              [raw = object.get()](asio::cancellation_type) { ++*raw; });
          if (throwing) throw std::runtime_error("after the slot was used");
          std::move(handler)(error_code());
        };
        try {
          initiate<void(error_code)>(leaves_a_handler, self);
        } catch (const std::runtime_error&) {
        }
        auto timer = std::make_unique<asio::steady_timer>(self.get_executor(), -1ms);
        timer->async_wait(self);
      }
      while (!go) asio::post(self.get_executor(), self);
    });
    let_others_run(yield);
    child.cancel();
    let_others_run(yield);
    go = true;
    CHECK_FALSE(child.join(yield));
  });
}

TEST_CASE("cancel: an operation without an error code is started and told at once") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    bool go = false;
    int told = 0;
    child.start(yield, [&](yield_context self) {
      while (!go) asio::post(self.get_executor(), self);
      const auto ends_when_cancelled = [&](auto handler) {
        auto slot = asio::get_associated_cancellation_slot(handler);
        auto kept = std::make_shared<decltype(handler)>(std::move(handler));
        slot.assign([&, kept](asio::cancellation_type) {
          ++told;
          (*kept)(7);
        });
      };
      CHECK(initiate<void(int)>(ends_when_cancelled, self) == 7);
      asio::post(self.get_executor(), self);
      auto [ec] = asio::steady_timer(self.get_executor(), 1h).async_wait(asio::as_tuple(self));
      CHECK(ec == aborted);
    });
    let_others_run(yield);
    child.cancel();
    let_others_run(yield);
    go = true;
    CHECK_FALSE(child.join(yield));
    CHECK(told == 1);
  });
}

TEST_CASE("cancel: a loop that ignores its refusals is slowed down and then left by an exception") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    int refusals = 0;
    bool others_ran = false;
    child.start(yield, [&](yield_context self) {
      error_code ec;
      braid::sleep_for(1h, self[ec]);
      asio::post(self.get_executor(), [&] { others_ran = true; });
      try {
        for (;;) {
          braid::sleep_for(1h, self[ec]);
          ++refusals;
        }
      } catch (const boost::system::system_error& e) {
        CHECK(e.code() == aborted);
      }
      CHECK(others_ran);
      CHECK_THROWS(braid::sleep_for(1h, self[ec]));
      const braid::shield guard(self, 1h);
      asio::post(self.get_executor(), self);
      braid::sleep_for(1ms, self[ec]);
      CHECK_FALSE(ec);
    });
    let_others_run(yield);
    child.cancel();
    CHECK_FALSE(child.join(yield));
    CHECK(refusals == 16);
  });
}

TEST_CASE("cancel: sleep_for ends early, and never before its time otherwise") {
  in_coroutine([](yield_context yield) {
    const auto start = yield.now();
    braid::sleep_for(5ms, yield);
    CHECK(yield.now() - start >= 5ms);
    cancellable child;
    child.start(yield, [&](yield_context self) { braid::sleep_for(std::chrono::nanoseconds::max(), self); });
    let_others_run(yield);
    child.cancel();
    CHECK(child.join(yield) == aborted);
  });
}

TEST_CASE("cancel: shield lets a cancelled coroutine wait until its own limit") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    std::string steps;
    child.start(yield, [&](yield_context self) {
      error_code ec;
      braid::sleep_for(1h, self[ec]);
      CHECK(ec == aborted);
      {
        const braid::shield guard(self, 1h);
        braid::sleep_for(1ms, self[ec]);
        if (!ec) steps += "waited ";
        CHECK(self.cancelled() == braid::cancel_cause::user);
      }
      braid::sleep_for(1ms, self[ec]);
      if (ec == aborted) steps += "refused ";
      {
        const braid::shield guard(self, 1ms);
        braid::sleep_for(1h, self[ec]);
        if (ec == aborted) steps += "limited ";
        const braid::shield inner(self, 1h);  // cannot outlast the one around it
        braid::sleep_for(1ms, self[ec]);
        if (ec == aborted) steps += "bounded ";
      }
      const braid::shield outer(self, 1h);
      {
        const braid::shield inner(self, 1ms);
        braid::sleep_for(1h, self[ec]);
        if (ec == aborted) steps += "inner ";
      }
      braid::sleep_for(1ms, self[ec]);
      if (!ec) steps += "outer";
    });
    let_others_run(yield);
    child.cancel();
    CHECK_FALSE(child.join(yield));
    CHECK(steps == "waited refused limited bounded inner outer");
  });
}

TEST_CASE("cancel: inside a shield a cancellation waits for the end of the shield") {
  in_coroutine([](yield_context yield) {
    cancellable child;
    bool go = false;
    child.start(yield, [&](yield_context self) {
      {
        const braid::shield guard(self, 1h);
        while (!go) asio::post(self.get_executor(), self);
        braid::sleep_for(1ms, self);
        CHECK(self.cancelled() == braid::cancel_cause::user);
      }
      braid::sleep_for(1h, self);
    });
    let_others_run(yield);
    child.cancel();
    let_others_run(yield);
    go = true;
    CHECK(child.join(yield) == aborted);
  });
}

TEST_CASE("cancel: the slot of spawn's token may be emitted on another thread, before, during and after") {
  braid::runtime rt({.loops = 1});
  asio::thread_pool threads(1);
  for (int round = 0; round < 300; ++round) {
    asio::cancellation_signal signal;
    std::promise<error_code> ended;
    auto result = ended.get_future();
    asio::post(threads, [&] {
      braid::spawn(
          rt, [](yield_context self) { braid::sleep_for(1h, self); },
          asio::bind_executor(threads, asio::bind_cancellation_slot(
                                           signal.slot(), [&](error_code ec) { ended.set_value(ec); })));
      if (round % 3 == 0) signal.emit(asio::cancellation_type::terminal);
    });
    if (round % 3 == 1) asio::post(threads, [&] { signal.emit(asio::cancellation_type::partial); });
    if (round % 3 == 2) {
      get(asio::post(rt.get_executor(), asio::use_future));
      asio::post(threads, [&] { signal.emit(asio::cancellation_type::total); });
    }
    CHECK(get(std::move(result)) == aborted);
    get(asio::post(threads,
                   std::packaged_task<void()>([&] { signal.emit(asio::cancellation_type::terminal); })));
  }
  threads.join();
}

TEST_CASE("cancel: a child is cancelled with its parent, and may outlive it") {
  in_coroutine([](yield_context yield) {
    cancellable parent;
    std::string causes;
    int children = 2;
    parent.start(yield, [&](yield_context self) {
      for (int i = 0; i < 2; ++i) {
        braid::spawn(self, [&](yield_context child) {
          error_code ec;
          braid::sleep_for(1h, child[ec]);
          causes += std::string(braid::to_string(child.cancelled())) + " ";
          --children;
        });
      }
      braid::sleep_for(1h, self);
    });
    let_others_run(yield);
    parent.cancel();
    CHECK(parent.join(yield) == aborted);
    let_others_run(yield);
    CHECK(children == 0);
    CHECK(causes == "user user ");

    cancellable short_lived;
    parked<> wake_orphan;
    bool orphan_ended = false;
    short_lived.start(yield, [&](yield_context self) {
      braid::spawn(self, [&](yield_context orphan) {
        wake_orphan.wait(orphan);
        CHECK(orphan.cancelled() == braid::cancel_cause::none);
        orphan_ended = true;
      });
    });
    CHECK_FALSE(short_lived.join(yield));
    short_lived.cancel();
    let_others_run(yield);
    wake_orphan.call();
    let_others_run(yield);
    CHECK(orphan_ended);
  });
}

TEST_CASE("cancel: a coroutine awaited from another runtime is cancelled with the one that waits") {
  braid::runtime other({.loops = 1});
  in_coroutine([&](yield_context yield) {
    cancellable child;
    child.start(yield, [&](yield_context self) {
      braid::spawn(
          other, [](yield_context far) { braid::sleep_for(1h, far); }, self);
    });
    let_others_run(yield);
    child.cancel();
    CHECK(child.join(yield) == aborted);
  });
}
