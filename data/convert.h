#pragma once

#include <string>
#include <vector>

#include <tandem/data/csv.h>
#include <tandem/data/idx.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// The array with its own shape and element type.
TANDEM_API Tensor to_tensor(const IdxArray& array);

/// Numeric columns side by side, [rows, columns] of f32 or f64: the latter holds every digit of the file, which large
/// offsets (dates, identifiers) need until they are standardised. Throws what CsvTable::numeric throws.
TANDEM_API Tensor to_tensor(const CsvTable& table, const std::vector<std::string>& columns, DType dtype = DType::f32);

/// A text column as f32 [rows, categories] with one 1 per row, none where the index is -1.
TANDEM_API Tensor to_tensor(const OneHot& column);

}  // namespace tandem::inline v0::data
