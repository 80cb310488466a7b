#include "coroutine_fixture.hpp"

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/append.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/consign.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/prepend.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>
#include <tuple>

using namespace std::chrono_literals;
using namespace coroutine_fixture;

namespace {

using owned = std::unique_ptr<int>;

struct no_default {
  explicit no_default(int v) : value(v) {}
  int value;
};

bool throws_code(const std::function<void()>& call, const error_code& wanted) {
  try {
    call();
  } catch (const boost::system::system_error& e) {
    return e.code() == wanted;
  }
  return false;
}

}  // namespace

TEST_CASE("coroutine: a spawned function returns its value to the token") {
  braid::runtime rt({.loops = 1});
  auto result = braid::spawn(
      rt, [](yield_context) { return 42; }, asio::use_future);
  CHECK(get(std::move(result)) == 42);
}

TEST_CASE("coroutine: an await of a foreign timer suspends and resumes") {
  CHECK(in_coroutine([](yield_context yield) {
          asio::steady_timer timer(yield.get_executor(), 1ms);
          timer.async_wait(yield);
          braid::sleep_for(1ms, yield);
          asio::post(yield.get_executor(), yield);
          return 7;
        }) == 7);
}

TEST_CASE("await: a handler called inside the initiation does not suspend") {
  in_coroutine([](yield_context yield) {
    bool others_ran = false;
    asio::post(yield.get_executor(), [&] { others_ran = true; });
    asio::dispatch(yield.get_executor(), yield);
    CHECK_FALSE(others_ran);
    asio::post(yield.get_executor(), yield);
    CHECK(others_ran);
  });
}

TEST_CASE("await: every shape of completion returns its values, wherever the handler is called") {
  in_coroutine([](yield_context yield) {
    operations op;
    for (const place where : all_places) {
      op.complete<void()>(where, yield, yield);
      op.complete<void(error_code)>(where, yield, yield, error_code());
      CHECK(op.complete<void(error_code, int)>(where, yield, yield, error_code(), 5) == 5);
      CHECK(op.complete<void(error_code, int, std::string)>(
                where, yield, yield, error_code(), 5, std::string("x")) == std::tuple(5, std::string("x")));
      CHECK(op.complete<void(int)>(where, yield, yield, 6) == 6);
      CHECK(op.complete<void(int, std::string)>(where, yield, yield, 6, std::string("y")) ==
            std::tuple(6, std::string("y")));
      op.complete<void(std::exception_ptr)>(where, yield, yield, std::exception_ptr());
      CHECK(op.complete<void(std::exception_ptr, int)>(where, yield, yield, std::exception_ptr(), 8) == 8);
      CHECK(op.complete<void(error_code, const std::string&)>(where, yield, yield, error_code(),
                                                              std::string("a reference")) == "a reference");
    }
  });
}

TEST_CASE("await: an error code is thrown, or stored by yield[ec]") {
  in_coroutine([](yield_context yield) {
    operations op;
    for (const place where : all_places) {
      CHECK(throws_code([&] { op.complete<void(error_code)>(where, yield, yield, refused); }, refused));
      CHECK(
          throws_code([&] { op.complete<void(error_code, int)>(where, yield, yield, refused, 3); }, refused));
      error_code ec;
      op.complete<void(error_code)>(where, yield, yield[ec], refused);
      CHECK(ec == refused);
      CHECK(op.complete<void(error_code, int)>(where, yield, yield[ec], error_code(), 3) == 3);
      CHECK_FALSE(ec);
      CHECK(op.complete<void(error_code, int, int)>(where, yield, yield[ec], refused, 3, 4) ==
            std::tuple(3, 4));
      CHECK(ec == refused);
      op.complete<void()>(where, yield, yield[ec]);
      CHECK(op.complete<void(int)>(where, yield, yield[ec], 6) == 6);
      CHECK(op.complete<void(int, int)>(where, yield, yield[ec], 6, 7) == std::tuple(6, 7));
      op.complete<void(std::exception_ptr)>(where, yield, yield[ec], std::exception_ptr());
      CHECK(ec == refused);
    }
  });
}

TEST_CASE("await: an exception_ptr that is not null is rethrown") {
  in_coroutine([](yield_context yield) {
    operations op;
    const auto thrown = std::make_exception_ptr(std::runtime_error("from afar"));
    error_code ec;
    for (const place where : all_places) {
      CHECK_THROWS_WITH(op.complete<void(std::exception_ptr)>(where, yield, yield, thrown), "from afar");
      CHECK_THROWS_WITH(op.complete<void(std::exception_ptr)>(where, yield, yield[ec], thrown), "from afar");
      CHECK_THROWS_WITH(op.complete<void(std::exception_ptr, int)>(where, yield, yield, thrown, 1),
                        "from afar");
    }
  });
}

TEST_CASE("await: results may be move-only, and need no default") {
  in_coroutine([](yield_context yield) {
    operations op;
    for (const place where : all_places) {
      CHECK(*op.complete<void(error_code, owned)>(where, yield, yield, error_code(),
                                                  std::make_unique<int>(9)) == 9);
      CHECK(*op.complete<void(owned)>(where, yield, yield, std::make_unique<int>(9)) == 9);
      auto two = op.complete<void(error_code, owned, int)>(where, yield, yield, error_code(),
                                                           std::make_unique<int>(9), 1);
      CHECK(*std::get<0>(two) == 9);
      CHECK(
          op.complete<void(error_code, no_default)>(where, yield, yield, error_code(), no_default(4)).value ==
          4);
    }
  });
}

TEST_CASE("await: works below as_tuple, redirect_error, append, prepend and consign") {
  in_coroutine([](yield_context yield) {
    operations op;
    for (const place where : all_places) {
      auto [ec, value] = op.complete<void(error_code, int)>(where, yield, asio::as_tuple(yield), refused, 5);
      CHECK(ec == refused);
      CHECK(value == 5);
      CHECK(std::get<0>(op.complete<void(error_code)>(where, yield, asio::as_tuple(yield), refused)) ==
            refused);
      op.complete<void()>(where, yield, asio::as_tuple(yield));
      error_code stored;
      CHECK(op.complete<void(error_code, int)>(where, yield, asio::redirect_error(yield, stored), refused,
                                               5) == 5);
      CHECK(stored == refused);
      op.complete<void(error_code)>(where, yield, asio::redirect_error(yield, stored), error_code());
      CHECK_FALSE(stored);
      CHECK(op.complete<void(error_code, int)>(where, yield, asio::append(yield, 7), error_code(), 5) ==
            std::tuple(5, 7));
      CHECK(op.complete<void(int)>(where, yield, asio::prepend(yield, 7), 5) == std::tuple(7, 5));
      auto kept = std::make_shared<int>(1);
      CHECK(op.complete<void(error_code, int)>(where, yield, asio::consign(yield, std::move(kept)),
                                               error_code(), 5) == 5);
    }
  });
}

TEST_CASE("await: a handler bound to another executor comes home") {
  in_coroutine([](yield_context yield) {
    operations op;
    const auto home = std::this_thread::get_id();
    braid::runtime other({.loops = 1});
    asio::io_context::executor_type other_loop = other.get_executor();
    for (int i = 0; i < 50; ++i) {
      asio::post(yield.get_executor(), asio::bind_executor(op.threads(), yield));
      CHECK(std::this_thread::get_id() == home);
      asio::post(op.threads(), asio::bind_executor(other_loop, yield));
      CHECK(std::this_thread::get_id() == home);
      asio::dispatch(other_loop, yield);
      CHECK(std::this_thread::get_id() == home);
      error_code ec;
      asio::steady_timer timer(yield.get_executor(), -1ms);
      timer.async_wait(asio::bind_executor(op.threads(), yield[ec]));
      CHECK(std::this_thread::get_id() == home);
      CHECK_FALSE(ec);
    }
  });
}

TEST_CASE("await: works through any_completion_handler and deferred, keeping executor and slot") {
  in_coroutine([](yield_context yield) {
    operations op;
    const auto erased = [&](auto&& token, place where) {
      return initiate<void(error_code, int)>(
          [&, where](asio::any_completion_handler<void(error_code, int)> handler) {
            CHECK(asio::get_associated_cancellation_slot(handler).is_connected());
            CHECK(asio::get_associated_executor(handler) ==
                  asio::any_completion_executor(yield.get_executor()));
            op.complete<void(error_code, int)>(where, yield, std::move(handler), error_code(), 3);
          },
          token);
    };
    for (const place where : all_places) {
      CHECK(erased(yield, where) == 3);
      CHECK(std::get<1>(erased(asio::as_tuple(yield), where)) == 3);
    }
    asio::steady_timer timer(yield.get_executor(), -1ms);
    timer.async_wait(asio::deferred)(yield);
    braid::spawn(
        yield, [](yield_context) {}, asio::deferred)(yield);
  });
}

TEST_CASE("await: a handler destroyed without a call ends the operation with operation_aborted") {
  in_coroutine([](yield_context yield) {
    operations op;
    for (const place where : all_places) {
      CHECK(throws_code([&] { op.drop<void(error_code)>(where, yield, yield); }, aborted));
      error_code ec;
      CHECK(op.drop<void(error_code, int)>(where, yield, yield[ec]) == 0);
      CHECK(ec == aborted);
      CHECK(throws_code([&] { op.drop<void(error_code, no_default)>(where, yield, yield[ec]); }, aborted));
      CHECK(throws_code([&] { op.drop<void()>(where, yield, yield[ec]); }, aborted));
      CHECK(throws_code([&] { op.drop<void(int)>(where, yield, yield); }, aborted));
      CHECK(throws_code([&] { op.drop<void(std::exception_ptr, int)>(where, yield, yield); }, aborted));
      CHECK(
          throws_code([&] { op.drop<void(error_code, int)>(where, yield, asio::as_tuple(yield)); }, aborted));
    }
  });
}

TEST_CASE("await: dropping a handler never resumes its coroutine inside the drop") {
  in_coroutine([](yield_context yield) {
    bool inside = false;
    bool resumed_inside = false;
    auto waiting = std::make_shared<parked<error_code>>();
    // Called by Asio itself, so that no turn of the loop is open while the handler is dropped.
    asio::post(yield.get_executor(), [&, waiting] {
      inside = true;
      waiting->drop();
      inside = false;
    });
    error_code ec;
    waiting->wait(yield[ec]);
    resumed_inside = inside;
    CHECK(ec == aborted);
    CHECK_FALSE(resumed_inside);
  });
}

TEST_CASE("await: what an initiation throws arrives, once its handler is done with") {
  in_coroutine([](yield_context yield) {
    operations op;
    const auto failing = [&](place where, bool moves_handler) {
      initiate<void(error_code)>(
          [&, where, moves_handler](auto handler) {
            if (moves_handler) op.complete<void(error_code)>(where, yield, std::move(handler), refused);
            throw std::runtime_error("not started");
          },
          yield);
    };
    for (const place where : all_places) {
      CHECK_THROWS_WITH(failing(where, false), "not started");
      CHECK_THROWS_WITH(failing(where, true), "not started");
    }
  });
}

TEST_CASE("await: outside its own coroutine a yield_context throws logic_error") {
  in_coroutine([](yield_context yield) {
    asio::thread_pool threads(1);
    const auto misuse = [yield] {
      int caught = 0;
      const auto expect = [&](auto call) {
        try {
          call();
        } catch (const std::logic_error&) {
          ++caught;
        }
      };
      expect([&] { asio::post(yield.get_executor(), yield); });
      expect([&] { braid::sleep_for(0ms, yield); });
      expect([&] { braid::spawn(yield, [](yield_context) {}); });
      expect([&] { const braid::shield guard(yield, 1s); });
      return caught;
    };
    int on_loop = 0;
    int on_thread = 0;
    int in_other = 0;
    asio::post(yield.get_executor(), [&] { on_loop = misuse(); });
    asio::post(yield.get_executor(), yield);
    asio::post(threads, [&] { on_thread = misuse(); });
    asio::post(threads, yield);
    braid::spawn(
        yield, [&](yield_context) { in_other = misuse(); }, yield);
    CHECK(on_loop == 4);
    CHECK(on_thread == 4);
    CHECK(in_other == 4);
  });
}

TEST_CASE("await: a coroutine that resumes another one goes on first") {
  in_coroutine([](yield_context a) {
    std::string order;
    parked<> resume_b;
    parked<error_code> joined;
    braid::spawn(
        a,
        [&](yield_context b) {
          order += "b1 ";
          resume_b.wait(b);
          order += "b2 ";
        },
        [&](error_code ec) { joined.call(ec); });
    asio::post(a.get_executor(), a);
    order += "a1 ";
    resume_b.call();  // B could now resume A, if it ran at once
    order += "a2 ";
    joined.wait(a);
    order += "a3";
    CHECK(order == "b1 a1 a2 b2 a3");
    asio::post(a.get_executor(), a);  // A is still known as the running one
  });
}

TEST_CASE("await: coroutines that start coroutines stay known as the running ones") {
  in_coroutine([](yield_context yield) {
    int leaves = 0;
    std::function<void(yield_context, int)> grow = [&](yield_context self, int depth) {
      if (depth == 0) {
        ++leaves;
        return;
      }
      const auto child = [&grow, depth](yield_context below) { grow(below, depth - 1); };
      braid::spawn(self, child);
      asio::post(self.get_executor(), self);
      braid::spawn(self, child, self);
      asio::dispatch(self.get_executor(), self);
    };
    grow(yield, 5);
    while (leaves < 32) asio::post(yield.get_executor(), yield);
    CHECK(leaves == 32);
  });
}

TEST_CASE("await: asio's own coroutines on our loop never resume ours on their stack") {
  in_coroutine([](yield_context yield) {
    int rounds = 0;
    bool in_asios = false;
    bool nested = false;
    parked<> waiting;
    std::exception_ptr failure;
    bool over = false;
    asio::spawn(
        yield.get_executor(),
        [&](asio::yield_context theirs) {
          for (int i = 0; i < 100; ++i) {
            asio::post(theirs);
            if (!waiting) continue;
            in_asios = true;
            waiting.call();
            in_asios = false;
          }
          over = true;
        },
        [&](std::exception_ptr e) { failure = e; });
    while (!over) {
      if (rounds == 20) {
        asio::post(yield.get_executor(), yield);
        continue;
      }
      waiting.wait(yield);
      nested = nested || in_asios;
      ++rounds;
    }
    CHECK_FALSE(failure);
    CHECK_FALSE(nested);
    CHECK(rounds == 20);
  });
}

TEST_CASE("await: asio's tokens work with spawn, also from asio's coroutines") {
  braid::runtime rt({.loops = 1});
  asio::io_context mine;
  int got = 0;
  asio::spawn(
      mine,
      [&](asio::yield_context theirs) {
        const auto here = std::this_thread::get_id();
        got = braid::spawn(
            rt, [](yield_context) { return 5; }, theirs);
        CHECK(std::this_thread::get_id() == here);
      },
      [](std::exception_ptr e) {
        if (e) std::rethrow_exception(e);
      });
  mine.run();
  CHECK(got == 5);
}
