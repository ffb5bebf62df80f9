"""Turns layouts.tsv into a C++ header: the table for constexpr look-up, and for each structure a macro that checks a declaration of it.

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

LOOK_UP = """\
};

// Not constexpr, so that a name the table lacks does not compile where a constant is asked for.
[[noreturn]] inline void not_in_the_table() { __builtin_trap(); }

constexpr const Row& row_of(std::string_view structure, std::string_view member) {
  for (const Row& row : kRows) {
    if (row.structure == structure && row.member == member) return row;
  }
  not_in_the_table();
}
constexpr size_t offset_of(std::string_view structure, std::string_view member) { return row_of(structure, member).offset; }
constexpr size_t size_of(std::string_view structure, std::string_view member = "-") { return row_of(structure, member).size; }
constexpr std::string_view call_of(std::string_view structure, std::string_view member) { return row_of(structure, member).call; }

}  // namespace sluice::nccl_layouts

// SLUICE_CHECK_LAYOUT_<structure>(Type): Type has every member of the structure, by the table's names, each where NCCL has it, as
// large, and called the same way; and nothing behind them.
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
                raise SystemExit(f"{path}:{number}: columns are not {COLUMNS}")
            continue
        if len(fields) != len(COLUMNS):
            raise SystemExit(f"{path}:{number}: {len(fields)} columns")
        row = dict(zip(COLUMNS, fields))
        structures.setdefault(row["struct"], []).append(row)
    for name, rows in structures.items():
        members = [row["member"] for row in rows]
        if members[0] != "-" or len(set(members)) != len(members):
            raise SystemExit(f"{path}: {name}: the first row must be the whole, and each member once")
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
            lines.append(f'  static_assert({shape}, "{where}: called as {row["call"]}")')
    return lines[0] + " \\\n" + "; \\\n".join(lines[1:]) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    structures = read_table(Path(sys.argv[1]))
    text = HEAD
    for name, rows in structures.items():
        for row in rows:
            text += f'    {{"{name}", "{row["member"]}", {row["offset"]}, {row["size"]}, "{row["call"]}", "{row["release"]}"}},\n'
    text += LOOK_UP
    for name, rows in structures.items():
        text += "\n" + macro(name, rows)
    target = Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
