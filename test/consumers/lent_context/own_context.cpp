#include "own_context.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#ifndef BOOST_ASIO_HEADER_ONLY
#error "this source is to compile Asio's functions itself"
#endif

void own::run(boost::asio::io_context& context) {
  boost::asio::steady_timer soon(context, std::chrono::milliseconds(1));
  soon.async_wait([](const boost::system::error_code&) {});
  context.run();
}

bool own::runs_here(boost::asio::io_context& context) {
  return context.get_executor().running_in_this_thread();
}
