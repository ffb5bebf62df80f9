// The files of reducer/admin/page/, which the build embeds (sluice_embed_text).
#pragma once

#include <string_view>

namespace sluice::reducer::admin {

extern const std::string_view kPageDocument, kPageStyle, kPageScript;

}  // namespace sluice::reducer::admin
