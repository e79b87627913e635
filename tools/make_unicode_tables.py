#!/usr/bin/env python3
"""Makes src/data/text/unicode/assigned.inc: the characters that Unicode 8 and 9 assign, by the ages that ICU knows.

    tools/make_unicode_tables.py > src/data/text/unicode/assigned.inc

Ages of old characters do not change, so ICU of any version makes the same file. Needs libicu-dev's library.
"""
import ctypes
import ctypes.util

NAME = ctypes.util.find_library("icuuc")
ICU = ctypes.CDLL(NAME)
VERSION = NAME.rsplit(".", 1)[1]
char_age = getattr(ICU, f"u_charAge_{VERSION}")


def age(point):
    version = (ctypes.c_uint8 * 4)()
    char_age(point, version)
    return 10 * version[0] + version[1]


def ranges(ages):
    found, first = [], None
    for point in range(0x110001):
        inside = point < 0x110000 and age(point) in ages
        if inside and first is None:
            first = point
        elif not inside and first is not None:
            found.append((first, point - 1))
            first = None
    return found


def put(name, found):
    print(f"constexpr Assigned {name}[] = {{")
    line = ""
    for first, last in found:
        entry = f"{{0x{first:X}, 0x{last:X}}}, "
        if len(line) + len(entry) > 121:
            print(line.rstrip())
            line = ""
        line += entry
    print(line.rstrip() + "\n};")


print("// Made by tools/make_unicode_tables.py: first and last characters of ranges.")
put("kUnicode8", ranges(range(1, 81)))
put("kNewInUnicode9", ranges([90]))
