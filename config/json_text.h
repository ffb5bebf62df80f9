// Writes JSON in code that a training process loads, which must not link a JSON library.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::config {

// Appends `text` as a JSON string with its quotes. Texts may come from a peer: everything but printable ASCII
// is escaped as \u00xx, and a text longer than `most_bytes` is truncated.
void append_json_text(std::string& out, std::string_view text, size_t most_bytes);

}  // namespace sluice::config
