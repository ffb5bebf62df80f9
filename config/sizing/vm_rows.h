// Converts the rows of a VM type table and checks each field.
#pragma once

#include <string>
#include <vector>

#include "config/sizing/csv_table.h"
#include "config/sizing/vm_catalog.h"
#include "core/result.h"

namespace sluice::config {

// The first row names the columns (vm_catalog.h). Errors are kInvalidArgument, "NAME:line:column: reason".
[[nodiscard]] Result<std::vector<VmType>> vm_rows(const std::vector<CsvRow>& rows, const std::string& name);

}  // namespace sluice::config
