// The one translation unit that holds the bodies of Asio's functions.
#include <braid/config.hpp>

#include <boost/asio/impl/src.hpp>
