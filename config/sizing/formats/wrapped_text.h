// Sentences as lines of a terminal's width.
#pragma once

#include <string>
#include <string_view>

namespace sluice::config {

// Appends `text` to `out` in lines of at most 100 characters, broken at spaces; the first begins with
// `first`, the others with `then`. A word that is longer stands alone.
void append_wrapped(std::string& out, std::string_view text, std::string_view first, std::string_view then);

}  // namespace sluice::config
