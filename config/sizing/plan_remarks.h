// What a plan has to say beside its figures.
#pragma once

#include <cstdint>

#include "config/sizing/plan.h"

namespace sluice::config {

// Fills plan.warnings and plan.notes of a plan whose figures are there.
void add_remarks(Plan& plan, int64_t today);

}  // namespace sluice::config
