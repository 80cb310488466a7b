#pragma once

/// \file
/// Switches on which a program and the library must agree. Every public header includes this one first.

// Asio is compiled once, into the library (lib/core/asio.cpp).
#ifndef BOOST_ASIO_SEPARATE_COMPILATION
#define BOOST_ASIO_SEPARATE_COMPILATION
#endif

// asio::spawn runs on Boost.Context; the deprecated Boost.Coroutine is never pulled in.
#ifndef BOOST_ASIO_DISABLE_BOOST_COROUTINE
#define BOOST_ASIO_DISABLE_BOOST_COROUTINE
#endif

#include <boost/version.hpp>

#if BOOST_VERSION < 108100
#error "braid needs Boost 1.81 or newer"
#endif
