#include <tandem/data/convert.h>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

Tensor to_tensor(const IdxArray& array) {
  return detail::from_memory("to_tensor", array.bytes.data(), array.bytes.size() / item_size(array.dtype), array.dtype,
                             Shape(array.sizes), {});
}

Tensor to_tensor(const CsvTable& table, const std::vector<std::string>& columns, DType dtype) {
  check<DTypeError>(is_floating_point(dtype), "to_tensor: columns are numbers with fractions, which {} has not", dtype);
  const auto width = static_cast<std::int64_t>(columns.size());
  Tensor result = empty({table.num_rows(), width}, {.dtype = DType::f64, .device = "cpu"});
  double* out = result.mutable_data<double>();
  for (std::int64_t c = 0; c < width; ++c) {
    std::int64_t row = 0;
    for (const double value : table.numeric(columns[static_cast<std::size_t>(c)])) {
      out[row++ * width + c] = value;
    }
  }
  return result.to(dtype).to(core::thread_state().device);
}

Tensor to_tensor(const OneHot& column) {
  const auto width = static_cast<std::int64_t>(column.categories.size());
  Tensor result = zeros({static_cast<std::int64_t>(column.indices.size()), width}, {.device = "cpu"});
  float* out = result.mutable_data<float>();
  for (std::size_t row = 0; row < column.indices.size(); ++row) {
    if (column.indices[row] >= 0) {
      out[static_cast<std::int64_t>(row) * width + column.indices[row]] = 1;
    }
  }
  return result.to(core::thread_state().device);
}

}  // namespace tandem::inline v0::data
