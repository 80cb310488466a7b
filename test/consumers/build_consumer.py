#!/usr/bin/env python3
"""Installs the built library into a folder, and builds and runs a program against it; see --help.

The meson.build beside this file registers one test for each case: the function of its name below.
"""

import argparse
import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
COMMAND_TIMEOUT = 400  # less than that of the test, so that what hung is named


def require(condition, complaint):
    if not condition:
        sys.exit(f"error: {complaint}")


def run(*command, env=None, cwd=None):
    """Runs a command and returns what it wrote; ends the test where it fails."""
    words = [str(word) for word in command]
    print("+", shlex.join(words), flush=True)
    try:
        done = subprocess.run(words, env=env, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=COMMAND_TIMEOUT)
    except subprocess.TimeoutExpired as expired:
        sys.exit(f"error: still running after {COMMAND_TIMEOUT} s\n{expired.stdout}")
    require(done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}")
    return done.stdout


class Workshop:
    """The installed tree, and a fresh folder for one case."""

    def __init__(self, options):
        self.source, self.build, self.version = options.source, options.build, options.version
        self.sanitize = [] if options.sanitize == "none" else [f"-fsanitize={options.sanitize}"]
        self.sanitize_option = options.sanitize
        folder = options.build / "test" / "consumers"
        stage = folder / "installed"
        self.prefix = stage / options.prefix.relative_to("/")
        self.libdir = self.prefix / options.libdir
        self.includedir = self.prefix / options.includedir
        self.work = folder / options.case
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run("meson", "install", "-C", options.build, "--no-rebuild", "--only-changed", "--destdir", stage)

    def environment(self):
        """What a user sets to find a library in a folder of his own, and the flags of the build's sanitizers."""
        flags = " ".join(["-O0", *self.sanitize])
        return {**os.environ, "CXXFLAGS": flags, "LDFLAGS": " ".join(self.sanitize),
                "PKG_CONFIG_PATH": str(self.libdir / "pkgconfig"), "LD_LIBRARY_PATH": str(self.libdir)}

    def copy_of(self, project):
        """The sources of a project in the case's folder, the greeter that they share beside it."""
        for name in ("greeter", project):
            shutil.copytree(HERE / name, self.work / name)
        return self.work / project

    def soversion(self):
        return ".".join(self.version.split(".")[:2])


def greets(program, name, env=None):
    output = run(program, env=env)
    print(output, end="")
    require(f"hello, {name}\n" in output, f"{program} did not greet")


def uses_shared_library(program):
    return re.search(r"NEEDED.*\[libbraid\.so\.", run("readelf", "-d", program)) is not None


def pkg_config(shop):
    env = shop.environment()
    folder = shop.copy_of("pkg_config")
    run("make", env=env, cwd=folder)
    greets(folder / "greeter_shared", "consumer", env)
    greets(folder / "greeter_static", "consumer")
    require(uses_shared_library(folder / "greeter_shared"), "greeter_shared is not linked with the shared library")
    require(not uses_shared_library(folder / "greeter_static"), "greeter_static needs the shared library")


def cmake(shop):
    env = shop.environment()
    env.pop("LD_LIBRARY_PATH")  # CMake writes the path of what it found into the program
    folder = shop.copy_of("cmake")
    run("cmake", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={shop.prefix}", "-S", folder, "-B", folder / "build", env=env)
    run("ninja", "-C", folder / "build", env=env)
    for kind in ("shared", "static"):
        program = folder / "build" / f"greeter_{kind}"
        greets(program, "consumer")
        require(uses_shared_library(program) == (kind == "shared"), f"{program.name} has the wrong library")


def lent_context(shop):
    env = shop.environment()
    env["CXXFLAGS"] += f' -DBRAID_SOVERSION=\\"{shop.soversion()}\\"'
    folder = shop.copy_of("lent_context")
    run("make", env=env, cwd=folder)
    greets(folder / "lent_context", "lender", env)


def meson_subproject(shop):
    """Compiles the program's own sources against the subproject, and links them with the library that is built
    already: it has the same sources, and compiling them again would take longer than all tests. With
    BRAID_CONSUMERS=full the subproject is built too."""
    folder, build = shop.copy_of("meson_subproject"), shop.work / "build"
    (folder / "subprojects").mkdir()
    (folder / "subprojects" / "braid").symlink_to(shop.source, target_is_directory=True)
    run("meson", "setup", "-Doptimization=0", "-Ddebug=false", "-Db_lundef=false",
        f"-Db_sanitize={shop.sanitize_option}", build, folder)

    def introspect(what):
        return json.loads(run("meson", "introspect", what, build))

    targets = [target["name"] for target in introspect("--targets") if target["subproject"] == "braid"]
    require(targets == ["braid"], f"the subproject has targets beside the library: {targets}")
    require(not introspect("--tests"), "the subproject brings its tests")
    compilations = json.loads((build / "compile_commands.json").read_text())
    ours = [entry["command"] for entry in compilations if "libbraid" in entry["output"]]
    require(ours, "no source of the subproject is compiled")
    strict = [command for command in ours if re.search(r"-Werror|-Wconversion", command)]
    require(not strict, f"warnings in the subproject are errors: {strict[:1]}")

    if os.environ.get("BRAID_CONSUMERS") == "full":
        run("ninja", "-C", build)
    else:
        lines = run("ninja", "-C", build, "-t", "commands", "greeter").splitlines()
        link = lines[-1].replace("subprojects/braid/lib/libbraid.a", str(shop.build / "lib" / "libbraid.a"))
        require(str(shop.build) in link, f"the program is not linked with the library: {link}")
        objects = [entry["output"] for entry in compilations if entry["output"].startswith("greeter.p/")]
        run("ninja", "-C", build, *objects)
        run("sh", "-c", link, cwd=build)
    greets(build / "greeter", "consumer")


def installed_files(shop):
    headers = sorted((shop.source / "include").glob("braid/**/*.hpp"))
    missing = [header for header in headers
               if not (shop.includedir / header.relative_to(shop.source / "include")).is_file()]
    require(headers and not missing, f"headers that are not installed: {missing}")

    env = shop.environment()
    require(run("pkg-config", "--modversion", "braid", env=env).strip() == shop.version, "wrong version")
    shared, static = (run("pkg-config", *kind, "--libs", "braid", env=env).split() for kind in ((), ("--static",)))
    require("-lprotobuf" in shared and "-lfmt" not in shared, f"flags for the shared library: {shared}")
    require({"-lprotobuf", "-lfmt", "-lz", "-lsnappy", "-lboost_context"} <= set(static), f"flags for the static library: {static}")

    name = f"libbraid.so.{shop.soversion()}"
    library = shop.libdir / "libbraid.so"
    require(f"[{name}]" in run("readelf", "-d", library), f"the shared library is not called {name}")
    require((shop.libdir / name).resolve() == library.resolve(), f"{name} is not the library")
    check_asio_state(library)
    check_cmake_versions(shop)


def check_asio_state(library):
    """Asio's record of the contexts that a thread runs must be the process's only one: a symbol of the kind that the
    dynamic linker merges over all programs and libraries, however they were loaded."""
    symbols = [line.split(maxsplit=2)[-2:] for line in run("nm", "-DC", "--defined-only", library).splitlines()]
    records = [(kind, name) for kind, name in symbols
               if "keyword_tss_ptr<boost::asio::detail::call_stack<" in name and name.endswith("::value_")]
    require(records, "the shared library does not export Asio's thread-local state")
    require(all(kind == "u" for kind, _ in records), f"not merged by the dynamic linker: {records}")


def check_cmake_versions(shop):
    major, minor, patch = (int(part) for part in shop.version.split("."))
    cases = [(shop.version, True), (f"{major}.{minor}", True), (f"{major}.{minor}.{patch + 1}", False),
             (f"{major}.{minor + 1}", False), (f"{major + 1}.0", False)]
    script = shop.work / "version.cmake"
    for wanted, compatible in cases:
        parts = (wanted + ".0").split(".")
        script.write_text(f"""
            set(PACKAGE_FIND_VERSION {wanted})
            set(PACKAGE_FIND_VERSION_MAJOR {parts[0]})
            set(PACKAGE_FIND_VERSION_MINOR {parts[1]})
            include({shop.prefix}/share/cmake/braid/braidConfigVersion.cmake)
            message("${{PACKAGE_VERSION_COMPATIBLE}}")""")
        answer = run("cmake", "-P", script).strip()
        require(answer == str(compatible).upper(), f"version {wanted}: {answer}")


CASES = [pkg_config, cmake, meson_subproject, lent_context, installed_files]


def main():
    parser = argparse.ArgumentParser(description="Build a consumer of the installed library and run it.")
    for name in ("source", "build", "prefix"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("libdir", "includedir", "version", "sanitize"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("case", choices=[case.__name__ for case in CASES])
    options = parser.parse_args()
    {case.__name__: case for case in CASES}[options.case](Workshop(options))


if __name__ == "__main__":
    main()
