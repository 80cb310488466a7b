// Lends an io_context to the shared library, and serves and calls a greeter in the one thread that runs it.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/method.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "greeter.pb.h"
#include "own_context.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// The top of Asio's stack of running contexts of this thread, as the library's own code would find it.
const void* frame_seen_by_library() {
  void* const library = dlopen("libbraid.so." BRAID_SOVERSION, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return nullptr;
  const void* const top =
      dlsym(library,
            "_ZN5boost4asio6detail15keyword_tss_ptrINS1_10call_stackINS1_14thread_contextE"
            "NS1_16thread_info_baseEE7contextEE6value_E");
  return top ? *static_cast<void* const*>(top) : nullptr;
}

struct findings {
  bool library_saw_frame = false;
  bool handler_on_context = false;
  bool answered = false;
};

class greeter_service : public greeter::Greeter {
 public:
  greeter_service(boost::asio::io_context& context, findings& found) : context_(context), found_(found) {}

  void Greet(google::protobuf::RpcController*, const greeter::GreetRequest* request,
             greeter::GreetResponse* response, google::protobuf::Closure* done) override {
    found_.handler_on_context = own::runs_here(context_);
    response->set_text("hello, " + request->name());
    done->Run();
  }

 private:
  boost::asio::io_context& context_;
  findings& found_;
};

}  // namespace

int main() {
  findings found;
  boost::asio::io_context context;
  braid::runtime rt{context};

  greeter_service service{context, found};
  braid::server server{rt};
  server.add_service(service);
  server.start("127.0.0.1:0");

  braid::channel channel{rt};
  channel.init("127.0.0.1:" + std::to_string(server.port()), {.timeout = 60s});

  greeter::GreetRequest request;
  request.set_name("lender");
  greeter::GreetResponse response;
  boost::asio::post(context, [&] {
    found.library_saw_frame = frame_seen_by_library() != nullptr;
    channel.async_call(braid::describe_method(&greeter::Greeter::Greet), request, response,
                       [&](braid::error_code ec) {
                         found.answered = !ec && own::runs_here(context);
                         if (ec) std::fprintf(stderr, "%s\n", ec.message().c_str());
                         server.async_stop({}, [](braid::error_code, const std::vector<std::string>&) {});
                       });
  });
  own::run(context);

  if (frame_seen_by_library() != nullptr) std::fputs("a frame is left\n", stderr);
  std::printf("library saw the running context: %d, handler on it: %d, answered on it: %d\n",
              found.library_saw_frame, found.handler_on_context, found.answered);
  if (!found.library_saw_frame || !found.handler_on_context || !found.answered) return 1;
  std::puts(response.text().c_str());
}
