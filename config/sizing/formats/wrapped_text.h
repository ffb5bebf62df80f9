// Wraps sentences to the width of a terminal.
#pragma once

#include <string>
#include <string_view>

namespace sluice::config {

// Appends `text` to `out` in lines of at most 100 characters, broken at spaces. The first line begins with
// `first_prefix`, the others with `next_prefix`. A longer word gets its own line.
void append_wrapped(std::string& out, std::string_view text, std::string_view first_prefix,
                    std::string_view next_prefix);

}  // namespace sluice::config
