#pragma once

#include <string>
#include <vector>

#include <tandem/data/csv.h>
#include <tandem/data/idx.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// Converts an array, keeping its shape and element type.
TANDEM_API Tensor to_tensor(const IdxArray& array);

/// Joins numeric columns to [rows, columns] of f32 or f64. f64 keeps every digit of the file, which large offsets
/// (dates, identifiers) need until they are standardized. Throws the errors of CsvTable::numeric().
TANDEM_API Tensor to_tensor(const CsvTable& table, const std::vector<std::string>& columns, DType dtype = DType::f32);

/// Converts a text column to one-hot f32 [rows, categories]. A row with index -1 is all zeros.
TANDEM_API Tensor to_tensor(const OneHot& column);

}  // namespace tandem::inline v0::data
