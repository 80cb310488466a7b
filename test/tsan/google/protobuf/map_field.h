// Found before protobuf's own header of that name in builds with ThreadSanitizer. There protobuf gives every
// map field two members more, which the library that is installed, built without it, knows nothing of: what
// either side then writes into a map field of the other's lands elsewhere.

#pragma once
#pragma GCC system_header

#include <memory>  // the standard library is to know of ThreadSanitizer

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
