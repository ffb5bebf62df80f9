// Adds the warnings and notes of a plan.
#pragma once

#include <cstdint>

#include "config/sizing/plan.h"

namespace sluice::config {

// Fills plan.warnings and plan.notes; all other members of `plan` must be set.
void add_remarks(Plan& plan, int64_t today);

}  // namespace sluice::config
