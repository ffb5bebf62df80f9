// Rows of a table of VM types, checked field by field.
#pragma once

#include <string>
#include <vector>

#include "config/sizing/csv_table.h"
#include "config/sizing/vm_catalogue.h"
#include "core/result.h"

namespace sluice::config {

// The first row names the columns (vm_catalogue.h). kInvalidArgument as "NAME:line:column: what is wrong".
[[nodiscard]] Result<std::vector<VmType>> vm_rows(const std::vector<CsvRow>& rows, const std::string& name);

}  // namespace sluice::config
