#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#include <catch2/catch_reporter_tap.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

// Writes the start and the end of each test case to the file named by BRAID_TEST_REPORT, unbuffered, so
// that test/run counts cases whatever the reporter, and knows which one was running when a program died.
class case_report : public Catch::TestEventListenerBase {
 public:
  explicit case_report(const Catch::ReporterConfig& config) : TestEventListenerBase{config} {
    if (const char* path = std::getenv("BRAID_TEST_REPORT")) {
      file_ = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    }
  }

  ~case_report() override {
    if (file_ >= 0) ::close(file_);
  }

  case_report(const case_report&) = delete;
  case_report& operator=(const case_report&) = delete;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    line("start\t" + info.name);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const char* outcome = stats.totals.testCases.failed > 0      ? "failed\t"
                          : stats.totals.assertions.total() == 0 ? "empty\t"
                                                                 : "passed\t";
    line(outcome + stats.testInfo.name);
    TestEventListenerBase::testCaseEnded(stats);
  }

 private:
  void line(std::string text) const {
    if (file_ < 0) return;
    text += '\n';
    if (::write(file_, text.data(), text.size()) != static_cast<::ssize_t>(text.size())) std::abort();
  }

  int file_{-1};
};

CATCH_REGISTER_LISTENER(case_report)

}  // namespace
