#!/usr/bin/env python3
"""Writes the N-th complete C++ program of a Markdown file to a source file: extract_program.py PAGE N OUTPUT."""
import re
import sys

page, number, output = sys.argv[1], int(sys.argv[2]), sys.argv[3]
blocks = re.findall(r"^```cpp\n(.*?)^```", open(page, encoding="utf-8").read(), re.S | re.M)
programs = [block for block in blocks if "int main(" in block]
if number > len(programs):
    sys.exit(f"{page} has {len(programs)} programs, not {number}")
with open(output, "w", encoding="utf-8") as file:
    file.write(programs[number - 1])
