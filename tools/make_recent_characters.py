#!/usr/bin/env python3
"""Makes src/data/text/unicode/recent_characters.inc: characters whose class the `tokenizers` library and PCRE2 see differently.

    tools/make_recent_characters.py PCRE2_CLASSES > src/data/text/unicode/recent_characters.inc

PCRE2_CLASSES has a line "CATEGORY CODE_POINT" (decimal) for each character that \\p{CATEGORY} matches in the PCRE2 at
hand. Needs tokenizers.
"""
import collections
import sys

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
THREE_BYTES = dict(Lu=0x1E00, Ll=0x1E01, Lm=0x1D2C, Lo=0x1200, Mn=0x1DC0, Mc=0x903, Nd=0x966, No=0x2460, Pd=0x2010,
                   Po=0x2016, Sm=0x2200, So=0x2100, Cf=0x200B)
FOUR_BYTES = dict(Lu=0x10400, Ll=0x10428, Lm=0x16B40, Lo=0x10280, Mn=0x1D167, Mc=0x1D165, Nd=0x104A0, No=0x10107,
                  Pd=0x10EAD, Po=0x10100, Sm=0x1D6C1, So=0x10137, Cf=0x110BD)
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def members(name):
    found = set()
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed", invert=True)
    for start in range(0, len(POINTS), 4096):
        part = POINTS[start:start + 4096]
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, part))):
            found.update(part[begin:end])
    return found


known = collections.defaultdict(set)
for line in open(sys.argv[1]):
    category, point = line.split()
    known[category].add(int(point))
stand_in = {}
han = members("Han")
for category in CATEGORIES:
    for point in members(category) - known[category]:
        other = (THREE_BYTES if point < 0x10000 else FOUR_BYTES)[category]
        if category == "Lo" and point in han:
            other = 0x4E00 if point < 0x10000 else 0x20000
        assert point >= 0x800 and other in known[category]
        stand_in[point] = other
stand_in[0x180E] = 0x200B
ranges = []
for point in sorted(stand_in):
    if ranges and ranges[-1][1] == point - 1 and ranges[-1][2] == stand_in[point]:
        ranges[-1][1] = point
    else:
        ranges.append([point, point, stand_in[point]])
print("// {first, last, an older character of the same category and length}: what Unicode 15, 15.1 and 16 added, one whose")
print("// category changed (U+1171E), and U+180E, which is white space to PCRE2 alone. Made by tools/make_recent_characters.py.")
line = ""
for first, last, other in ranges:
    entry = "{0x%X, 0x%X, 0x%X}," % (first, last, other)
    if len(line) + len(entry) + 1 > 118:
        print(line)
        line = ""
    line = (line + " " + entry).strip()
print(line)
