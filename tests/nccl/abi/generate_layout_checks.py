"""Generates a C++ header from layouts.tsv: the table for constexpr lookup, and for each structure a macro that checks a declaration.

usage: generate_layout_checks.py TABLE HEADER"""

import sys
from pathlib import Path

COLUMNS = ["release", "struct", "member", "offset", "size", "call"]

HEAD = """\
// Generated from layouts.tsv.
#pragma once

#include <cstddef>
#include <string_view>

#include "tests/nccl/abi/call_shape.h"

namespace sluice::nccl_layouts {

struct Row {
  std::string_view structure;
  std::string_view member;  // "-": the whole structure
  size_t offset;
  size_t size;
  std::string_view call;
  std::string_view releases;
};

inline constexpr Row kRows[] = {
"""

LOOKUP = """\
};

// Not constexpr, so that an unknown name in a constant expression does not compile.
[[noreturn]] inline void not_in_table() { __builtin_trap(); }

constexpr const Row& row_of(std::string_view structure, std::string_view member) {
  for (const Row& row : kRows) {
    if (row.structure == structure && row.member == member) return row;
  }
  not_in_table();
}
constexpr size_t offset_of(std::string_view structure, std::string_view member) { return row_of(structure, member).offset; }
constexpr size_t size_of(std::string_view structure, std::string_view member = "-") { return row_of(structure, member).size; }
constexpr std::string_view call_of(std::string_view structure, std::string_view member) { return row_of(structure, member).call; }

}  // namespace sluice::nccl_layouts

// SLUICE_CHECK_LAYOUT_<structure>(Type) checks that Type has exactly the members of the structure in the table, with the same
// offsets, sizes and function signatures.
"""


def read_table(path):
    """{structure: [row, ...]} in the order of the file."""
    structures = {}
    header = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if header is None:
            header = fields
            if header != COLUMNS:
                raise SystemExit(f"{path}:{number}: expected the columns {COLUMNS}")
            continue
        if len(fields) != len(COLUMNS):
            raise SystemExit(f"{path}:{number}: expected {len(COLUMNS)} columns, got {len(fields)}")
        row = dict(zip(COLUMNS, fields))
        structures.setdefault(row["struct"], []).append(row)
    for name, rows in structures.items():
        members = [row["member"] for row in rows]
        if members[0] != "-" or len(set(members)) != len(members):
            raise SystemExit(f"{path}: {name}: the first member must be "-", and each member must be unique")
    return structures


def macro(name, rows):
    lines = [f"#define SLUICE_CHECK_LAYOUT_{name}(Type)"]
    lines.append(f'  static_assert(sizeof(Type) == {rows[0]["size"]}, "{name}: size")')
    for row in rows[1:]:
        member = row["member"]
        where = f"{name}.{member}"
        lines.append(f'  static_assert(offsetof(Type, {member}) == {row["offset"]}, "{where}: offset")')
        lines.append(f'  static_assert(sizeof(Type::{member}) == {row["size"]}, "{where}: size")')
        if row["call"] != "-":
            shape = f'::sluice::nccl_layouts::CallShape<decltype(Type::{member})>::is("{row["call"]}")'
            lines.append(f'  static_assert({shape}, "{where}: signature is not {row["call"]}")')
    return lines[0] + " \\\n" + "; \\\n".join(lines[1:]) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    structures = read_table(Path(sys.argv[1]))
    text = HEAD
    for name, rows in structures.items():
        for row in rows:
            text += f'    {{"{name}", "{row["member"]}", {row["offset"]}, {row["size"]}, "{row["call"]}", "{row["release"]}"}},\n'
    text += LOOKUP
    for name, rows in structures.items():
        text += "\n" + macro(name, rows)
    target = Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
