#pragma once

// The part of the program that was there before braid.

namespace boost::asio {
class io_context;
}

namespace own {

/// Runs `context` until it has no more work.
void run(boost::asio::io_context& context);

/// Whether a handler of `context` runs on this thread.
bool runs_here(boost::asio::io_context& context);

}  // namespace own
