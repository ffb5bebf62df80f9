// The files of reducer/admin/page/. Defined in what the build makes of them (sluice_embed_text).
#pragma once

#include <string_view>

namespace sluice::reducer::admin {

extern const std::string_view kPageDocument, kPageStyle, kPageScript;

}  // namespace sluice::reducer::admin
