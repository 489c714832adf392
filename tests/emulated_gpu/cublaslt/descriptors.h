#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

// Contents of the opaque structures of the emulated cuBLASLt. They are copied in and out of the opaque bytes, which
// users may copy, too.

namespace emulated_gpu::cublaslt {

// The first bytes of an initialised structure. Structures without them are refused.
inline constexpr std::uint32_t kMatmulMagic = 0x544D414D;
inline constexpr std::uint32_t kLayoutMagic = 0x5459414C;
inline constexpr std::uint32_t kPreferenceMagic = 0x46455250;
inline constexpr std::uint32_t kAlgoMagic = 0x4F474C41;

struct MatmulDesc {
  std::uint32_t magic = kMatmulMagic;
  std::int32_t compute = 0;
  std::int32_t scale = 0;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t trans_a = CUBLAS_OP_N;
  std::int32_t trans_b = CUBLAS_OP_N;
  std::int32_t trans_c = CUBLAS_OP_N;
  std::int32_t fill_mode = CUBLAS_FILL_MODE_FULL;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t sm_count_target = 0;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;  // in bits
  std::int64_t aux_stride = 0;
  std::int32_t aux_type = -1;
  std::int32_t bias_type = -1;
  // These attributes are not emulated and are refused unless 0.
  std::int64_t alpha_stride = 0;
  const void* pointers[9] = {};
  std::int32_t scale_modes[6] = {};
  std::int8_t fast_accum = 0;  // for FP8; ignored for other types
};

struct Layout {
  std::uint32_t magic = kLayoutMagic;
  std::uint32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch = 1;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int64_t stride = 0;
  std::int64_t plane_offset = 0;
  std::uint32_t batch_mode = CUBLASLT_BATCH_MODE_STRIDED;
};

struct Preference {
  std::uint32_t magic = kPreferenceMagic;
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint64_t max_workspace = 0;
  std::uint32_t reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D, in bytes
  float max_waves = 0;
  std::uint64_t impl_mask = ~std::uint64_t{0};
};

struct Algo {
  std::uint32_t magic = kAlgoMagic;
  std::int32_t id = 0;
  std::uint32_t tile = 0;
  std::int32_t split_k = 1;
  std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::uint32_t swizzling = 0;
  std::uint32_t custom = 0;
  std::uint32_t stages = 0;
  std::uint16_t inner_shape = 0;
  std::uint16_t cluster_shape = 0;
  std::uint16_t alignment[6] = {};  // alignment that it relies on: A, B, C, D, bias, aux
  // The operation that the algorithm was chosen for.
  std::uint8_t in_type = 0;
  std::uint8_t out_type = 0;
  std::uint8_t compute = 0;
  std::uint16_t epilogue = 0;
};

// Returns a copy of the contents of `opaque`.
template <class Content, class Opaque>
Content content_of(const Opaque& opaque) {
  static_assert(std::is_trivially_copyable_v<Content> && sizeof(Content) <= sizeof(Opaque));
  Content content;
  std::memcpy(static_cast<void*>(&content), &opaque, sizeof content);
  return content;
}

template <class Opaque, class Content>
void put(Opaque& opaque, const Content& content) {
  static_assert(std::is_trivially_copyable_v<Content> && sizeof(Content) <= sizeof(Opaque));
  opaque = Opaque{};
  std::memcpy(static_cast<void*>(&opaque), &content, sizeof content);
}

}  // namespace emulated_gpu::cublaslt
