"""Runs the tests of a configured and built folder and counts them; called by test/run.

The programs come from `meson introspect`. One registered with the TAP reporter is a Catch2 program: each
of its cases is a test, counted from the file that the listener in test/catch_main.cpp writes, so that a
case that was running when the program died is known and the others still run. Every other program is one
test, and so is the check of test/README.md.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

TEST_DIR = pathlib.Path(__file__).resolve().parent
TIMEOUT_FACTOR = {"none": 1, "address": 2, "thread": 4}
MAX_RESTARTS = 20  # of one program, each after a crash
MAX_TIMEOUTS = 2  # of one program

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"

# What the listener says of a finished case. One without an assertion cannot fail, so it does.
CASE_REASONS = {"passed": "", "failed": "see above", "empty": "made no assertion"}


@dataclass
class Result:
    name: str
    program: str
    status: str
    reason: str = ""


@dataclass
class Report:
    """What one program's tests came to."""

    program: str
    results: list = field(default_factory=list)
    hidden: list = field(default_factory=list)
    may_fail: list = field(default_factory=list)
    output: str = ""
    seconds: float = 0.0

    def add(self, name, status, reason=""):
        self.results.append(Result(name, self.program, status, reason))

    def count(self, *statuses):
        return sum(result.status in statuses for result in self.results)


def sanitizer_environment(sanitize):
    if sanitize == "address":
        return {
            "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=1:strict_init_order=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        }
    if sanitize == "thread":
        return {"TSAN_OPTIONS": f"suppressions={TEST_DIR / 'tsan.supp'}:second_deadlock_stack=1:history_size=7"}
    return {}


def command_prefix(sanitize):
    """ThreadSanitizer cannot map its shadow where the kernel spreads addresses too widely."""
    fixed_addresses = ["setarch", "-R"]
    if sanitize != "thread" or shutil.which("setarch") is None:
        return []
    works = subprocess.run([*fixed_addresses, "true"], stderr=subprocess.DEVNULL).returncode == 0
    return fixed_addresses if works else []


class Runner:
    def __init__(self, build, sanitize, pattern):
        self.build = build
        self.prefix = command_prefix(sanitize)
        self.environment = {**os.environ, **sanitizer_environment(sanitize)}
        self.timeout_factor = TIMEOUT_FACTOR[sanitize]
        self.pattern = f"*{pattern}*" if pattern else None

    def programs(self):
        listing = subprocess.run(["meson", "introspect", "--tests", str(self.build)], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        return json.loads(listing)

    def wanted(self, name):
        return self.pattern is None or fnmatch.fnmatchcase(name, self.pattern)

    def execute(self, program, arguments, environment=None):
        """Returns exit status (None: timed out), output. Nothing that the program started outlives it."""
        with tempfile.TemporaryFile(mode="w+", errors="replace") as output:
            process = subprocess.Popen(
                [*self.prefix, *arguments], stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, cwd=program["workdir"] or self.build, start_new_session=True,
                env={**self.environment, **program["env"], **(environment or {})})
            timeout = (program["timeout"] or 30) * self.timeout_factor
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
                process.send_signal(signal.SIGABRT)  # a Catch2 program then says where it was
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            output.seek(0)
            text = output.read()
        if status is None:
            text += f"\n{program['name']} was stopped after {timeout} s\n"
        return status, text

    def run(self, program):
        report = Report(program["name"])
        start = time.monotonic()
        try:
            if program["protocol"] == "tap":
                self.run_cases(program, report)
            elif self.wanted(program["name"]):
                status, report.output = self.execute(program, program["cmd"])
                report.add(program["name"], PASSED if status == 0 else FAILED, describe(status))
        except OSError as error:
            report.add(program["name"], FAILED, str(error))
        report.seconds = time.monotonic() - start
        return report

    def run_cases(self, program, report):
        executable = [word for word in program["cmd"] if word not in ("-r", "tap")]
        names = self.list_cases(program, executable, report)
        if names is None:
            return
        pending = [name for name in names if self.wanted(name)]
        restarts = timeouts = 0
        while pending:
            everything = len(pending) == len(names)
            status, output, finished, running = self.run_pending(program, executable, pending, everything)
            report.output += output
            failed = False
            for name, outcome in finished:
                report.add(name, PASSED if outcome == "passed" else FAILED, CASE_REASONS[outcome])
                failed |= outcome == "failed"
            if running is not None:
                report.add(running, FAILED, f"{describe(status)} while it ran")
                failed = True
            if status != 0 and not failed:
                report.add(program["name"], FAILED, f"{describe(status)} although no case failed")
            done = {name for name, _ in finished} | {running}
            before = len(pending)
            pending = [name for name in pending if name not in done]
            restarts += 1
            timeouts += status is None
            progress = len(pending) < before
            if pending and not (progress and restarts <= MAX_RESTARTS and timeouts < MAX_TIMEOUTS):
                for name in pending:
                    report.add(name, NOT_RUN, "the program ended before it")
                return

    def list_cases(self, program, executable, report):
        listed = {}
        for which, spec in (("default", []), ("all", ["*,[.]"]), ("may_fail", ["[!mayfail],[!shouldfail]"])):
            status, output = self.execute(program, [*executable, "--list-test-names-only", *spec])
            listed[which] = output.splitlines()
            if status is None or status != min(len(listed[which]), 255):
                report.output += output
                report.add(program["name"], FAILED, f"cannot list its cases: {describe(status)}")
                return None
        report.hidden = [name for name in listed["all"] if name not in listed["default"]]
        report.may_fail = listed["may_fail"]
        if not listed["default"]:
            report.add(program["name"], FAILED, "has no test case")
            return None
        return listed["default"]

    def run_pending(self, program, executable, pending, everything):
        with tempfile.TemporaryDirectory() as folder:
            cases, records = pathlib.Path(folder, "cases"), pathlib.Path(folder, "report")
            arguments = list(executable)
            if not everything:
                cases.write_text("".join(f'"{escape(name)}"\n' for name in pending))
                arguments += ["-f", str(cases)]
            status, output = self.execute(program, arguments, {"BRAID_TEST_REPORT": str(records)})
            finished, running = [], None
            for line in records.read_text().splitlines() if records.exists() else []:
                event, name = line.split("\t", 1)
                if event == "start":
                    running = name
                else:
                    finished.append((name, event))
                    running = None
        return status, re.sub(r"^Filters: .*\n", "", output), finished, running


def escape(name):
    return name.replace("\\", "\\\\").replace('"', '\\"').replace(",", "\\,")


def describe(status):
    if status is None:
        return "timed out"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def show(report):
    if len(report.results) == 1 and report.results[0].name == report.program and report.count(PASSED):
        print(f"ok    {report.program}")
        return
    if not report.results:
        return
    print(report.output.rstrip())
    hidden = f", {len(report.hidden)} hidden by tag [.] and not run" if report.hidden else ""
    print(f"{report.program}: {report.count(PASSED)} passed, {report.count(FAILED, NOT_RUN)} failed{hidden}"
          f" ({report.seconds:.1f} s)", flush=True)


def run_all(runner, jobs):
    """Programs that ask to be alone run after the others, one at a time."""
    programs = [program for program in runner.programs() if "bench" not in program["suite"]]
    together = [program for program in programs if program["is_parallel"]]
    alone = [program for program in programs if not program["is_parallel"]]
    reports = []
    for group, width in ((together, jobs), (alone, 1)):
        with ThreadPoolExecutor(width) as pool:
            for report in pool.map(runner.run, group):
                show(report)
                reports.append(report)
    return reports


def check_contract(build, reports):
    record = {
        "tests": [vars(result) for report in reports for result in report.results],
        "hidden": [name for report in reports for name in report.hidden],
        "may_fail": [name for report in reports for name in report.may_fail],
    }
    results = build / "test_results.json"
    results.write_text(json.dumps(record, indent=1))
    report = Report("contract list of test/README.md")
    status = subprocess.run([sys.executable, TEST_DIR / "check_contract", TEST_DIR / "README.md", results]).returncode
    report.add(report.program, PASSED if status == 0 else FAILED, "see above")
    show(report)
    return report


def main():
    parser = argparse.ArgumentParser(description="Run and count the tests of a build folder.")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--sanitize", choices=TIMEOUT_FACTOR, default="none")
    parser.add_argument("--filter", default="")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()

    reports = run_all(Runner(options.build.resolve(), options.sanitize, options.filter), options.jobs)
    if options.filter:
        print("The contract's list is not checked: --filter left tests out")
    else:
        reports.append(check_contract(options.build.resolve(), reports))

    failures = [result for report in reports for result in report.results if result.status != PASSED]
    passed = sum(report.count(PASSED) for report in reports)
    if failures:
        print("\nNot passed:")
        for result in failures:
            program = "" if result.program == result.name else f" [{result.program}]"
            print(f"  {result.status}: {result.name}{program}: {result.reason}")
    if not failures and passed == 0:
        print("No test has that name")
    sys.stdout.flush()
    print(f"{passed} passed, {len(failures)} failed", flush=True)
    return 0 if passed > 0 and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
