# Sources that a build with CUDA compiles in addition to the families' own.
set(cuda_sources "")
set(cuda_kernels "")
if(TANDEM_CUDA_ENABLED)
  set(cuda_sources
    cuda/matmul/plan.cpp cuda/matmul/planner.cpp cuda/tuner.cpp
    cuda/cuda_queue.cpp cuda/launch/queue.cpp cuda/launch/step.cpp cuda/patterns/reduction_plan.cpp)
  set(cuda_kernels
    cuda/batch_norm_grad.cu cuda/layer_norm_grad.cu cuda/launch/step.cu cuda/matmul/epilogue.cu
    cuda/matmul/small_product.cu cuda/patterns/sort.cu)
  # Types are divided so that no source takes longer than 20 s to compile for one GPU.
  tandem_for_types(cuda_kernels copy kernels/cuda/copy_kernels.h
    "void copy_to<{}>(const Queue&, const Copy&)" f32_f64 bf16_f16 i64_i32 u8_bool)
  tandem_for_types(cuda_kernels cross_entropy_one_class kernels/cuda/cross_entropy_kernels.h
    "void launch_cross_entropy<false, {}>(const Queue&, const CrossEntropy&)" f32_f64_bf16_f16)
  tandem_for_types(cuda_kernels cross_entropy_shares kernels/cuda/cross_entropy_kernels.h
    "void launch_cross_entropy<true, {}>(const Queue&, const CrossEntropy&)" f32_f64_bf16_f16)
  tandem_for_types(cuda_kernels reduce kernels/cuda/reduce_kernels.h
    "void reduce_on_gpu<{}>(const Queue&, const Reduce&)" f32 f64 bf16 f16 i64 i32 u8_bool)
  foreach(part arithmetic function gradient)
    tandem_for_types(cuda_kernels pointwise_${part} kernels/cuda/pointwise_kernels.h
      "PointwiseLauncher ${part}_launcher<{}>(PointwiseOp)" f32 f64 bf16 f16)
  endforeach()
  tandem_for_types(cuda_kernels pointwise_integer kernels/cuda/pointwise_kernels.h
    "PointwiseLauncher integer_launcher<{}>(PointwiseOp)" i64_i32_u8)
endif()
set(cudnn_sources "")
if(TANDEM_CUDNN_ENABLED)
  set(cudnn_sources
    cuda/cudnn/activation.cpp cuda/cudnn/activation_plan.cpp cuda/cudnn/conv.cpp cuda/cudnn/conv_plan.cpp
    cuda/cudnn/graph.cpp cuda/cudnn/library.cpp cuda/cudnn/softmax.cpp)
  list(APPEND cuda_sources ${cudnn_sources})
endif()
