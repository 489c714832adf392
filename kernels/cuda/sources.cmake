# What only a build with CUDA compiles.
set(cuda_sources "")
set(cuda_kernels "")
if(TANDEM_CUDA_ENABLED)
  set(cuda_sources
    cuda/matmul.cpp cuda/matmul/plan.cpp cuda/matmul/planner.cpp cuda/matmul/tuner.cpp cuda/pointwise.cpp
    cuda/queue.cpp cuda/reduce.cpp cuda/reduction_plan.cpp cuda/step.cpp cuda/transfer.cpp)
  set(cuda_kernels
    cuda/batch_norm.cu cuda/batch_norm_grad.cu cuda/clip.cu cuda/combine.cu cuda/compare.cu cuda/copy.cu cuda/copy_16_bits.cu
    cuda/copy_bytes.cu cuda/copy_floats.cu cuda/copy_integers.cu cuda/cross_entropy.cu cuda/cross_entropy_grad.cu
    cuda/cross_entropy_shares.cu cuda/elementwise_loss.cu cuda/elementwise_loss_grad.cu cuda/fill.cu cuda/gather.cu cuda/grad_scale.cu
    cuda/index_add.cu cuda/index_select.cu cuda/layer_norm.cu cuda/layer_norm_grad.cu cuda/matmul/epilogue.cu
    cuda/nll_loss.cu cuda/optimizer.cu cuda/pointwise_bf16.cu cuda/pointwise_f16.cu cuda/pointwise_f32.cu
    cuda/pointwise_f64.cu cuda/pointwise_functions_bf16.cu cuda/pointwise_functions_f16.cu cuda/pointwise_grad_bf16.cu
    cuda/pointwise_grad_f16.cu cuda/pointwise_grad_f32.cu cuda/pointwise_grad_f64.cu cuda/pointwise_integers.cu
    cuda/prepared_gradient.cu cuda/random.cu cuda/reduce_bf16.cu cuda/reduce_bytes.cu cuda/reduce_f16.cu
    cuda/reduce_f32.cu cuda/reduce_f64.cu cuda/reduce_i32.cu cuda/reduce_i64.cu cuda/scan.cu cuda/scatter_add.cu
    cuda/softmax.cu cuda/softmax_grad.cu cuda/sort.cu cuda/step.cu)
endif()
set(cudnn_sources "")
if(TANDEM_CUDNN_ENABLED)
  set(cudnn_sources
    cuda/cudnn/activation.cpp cuda/cudnn/activation_plan.cpp cuda/cudnn/choice.cpp cuda/cudnn/library.cpp
    cuda/cudnn/session.cpp cuda/cudnn/softmax.cpp)
  list(APPEND cuda_sources ${cudnn_sources})
endif()
