#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/data/loader.h>
#include <tandem/kernels/copy.h>
#include <tandem/tensor/raw.h>

#include "cuda/gpu_test.h"

// Tests of tensors that move between devices.

namespace tandem {
namespace {

using test::all_are;
using test::filled;
using test::message_of;
using test::same_bits;

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16,
                            DType::i64, DType::i32, DType::u8,   DType::boolean};

std::vector<Device> devices() {
  std::vector<Device> all{"cpu"};
  for (int i = 0; i < cuda::device_count(); ++i)
    all.emplace_back(i);
  return all;
}

Tensor some(const Shape& sizes, DType dtype, Device device) {
  Generator generator(7);
  const GeneratorScope scope(generator);
  return randint(0, 100, sizes, {.device = "cpu"}).to(dtype).to(device);
}

TEST(CudaTransfer, AllTypesBetweenAllDevices) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : kTypes) {
    for (const Shape& sizes : {Shape{}, Shape{0}, Shape{1}, Shape{7, 5}, Shape{3, 0, 2}, Shape{1000, 3}}) {
      const Tensor expected = some(sizes, dtype, "cpu");
      for (const Device from : devices()) {
        for (const Device to : devices()) {
          const Tensor there = expected.to(from).to(to);
          EXPECT_EQ(there.device(), to);
          EXPECT_EQ(there.shape(), sizes);
          EXPECT_TRUE(same_bits(there, expected)) << dtype << sizes << from << to;
        }
      }
    }
  }
}

TEST(CudaTransfer, StridedAndBroadcast) {
  TANDEM_NEEDS_GPUS(1);
  for (const DType dtype : kTypes) {
    const Tensor plain = some({6, 8}, dtype, "cpu");
    for (const Device from : devices()) {
      for (const Device to : devices()) {
        const Tensor x = plain.to(from);
        EXPECT_TRUE(same_bits(x.t().to(to), plain.t())) << dtype << from << to;
        EXPECT_TRUE(same_bits(x.slice(1, 1, 8, 3).to(to), plain.slice(1, 1, 8, 3))) << dtype << from << to;
        EXPECT_TRUE(same_bits(x.select(0, 2).expand({4, 8}).to(to), plain.select(0, 2).expand({4, 8})));
        EXPECT_TRUE(same_bits(x.slice(0, 3, 3).to(to), plain.slice(0, 3, 3)));
      }
    }
  }
}

TEST(CudaTransfer, CopyConvertsBroadcastsAndAddsAcross) {
  TANDEM_NEEDS_GPUS(1);
  for (const Device from : devices()) {
    for (const Device to : devices()) {
      for (const DType dtype : kTypes) {
        Tensor out = zeros({3, 8}, {.dtype = DType::f32, .device = to});
        out.copy_(some({8}, dtype, from));
        EXPECT_TRUE(same_bits(out, some({8}, dtype, "cpu").to(DType::f32).expand({3, 8}))) << dtype << from << to;
        Tensor back = zeros({8, 3}, {.dtype = dtype, .device = to});
        back.t().copy_(some({3, 8}, DType::f32, from));
        EXPECT_TRUE(same_bits(back.t(), some({3, 8}, DType::f32, "cpu").to(dtype))) << dtype << from << to;
      }
    }
  }
}

TEST(CudaTransfer, GradientsFlowBack) {
  TANDEM_NEEDS_GPUS(1);
  for (const Device from : devices()) {
    for (const Device to : devices()) {
      Tensor x = some({5, 4}, DType::f32, from).requires_grad_();
      (x.t().to(to) * some({4, 5}, DType::f32, to)).sum().backward();
      EXPECT_EQ(x.grad().device(), from);
      EXPECT_TRUE(same_bits(x.grad(), some({4, 5}, DType::f32, "cpu").t())) << from << to;
    }
  }
}

// The program may overwrite the source of a copy: the copy has read it by then.
TEST(CudaTransfer, TheSourceMayChangeOrGoBehindACopy) {
  TANDEM_NEEDS_GPUS(1);
  for (const bool pinned : {false, true}) {
    for (const std::int64_t size : {1, 5000, 16384, 16385, 1 << 24}) {  // up to 64 MB
      Tensor host = full({size}, 3.0);
      if (pinned) host = host.pin_memory();
      const Tensor there = host.to("cuda:0");
      host.fill_(9);
      host = Tensor();
      EXPECT_TRUE(all_are(there, 3)) << size;
    }
  }
  for (const Device to : devices()) {
    Tensor x = filled(5000, 3);
    const Tensor copy = to == Device("cuda:0") ? x.clone() : x.to(to);
    x = Tensor();
    const Tensor other = filled(5000, 100);
    EXPECT_TRUE(all_are(copy, 3)) << to;
    EXPECT_TRUE(all_are(other, 100));
  }
}

// Short copies are in flight together, more of them than there are places for.
TEST(CudaTransfer, ManyShortCopiesKeepTheirValues) {
  TANDEM_NEEDS_GPUS(1);
  std::vector<Tensor> there;
  Tensor host = zeros({100});
  for (int i = 0; i < 50; ++i) {
    host.fill_(i);
    there.push_back(host.to(Device(i % cuda::device_count())));
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(all_are(there[static_cast<std::size_t>(i)], i)) << i;
  }
}

// A kernel of one GPU reads the memory of another, allocated before and after both were in use.
TEST(CudaTransfer, AGpuReachesThePeersMemory) {
  TANDEM_NEEDS_GPUS(2);
  if (!cuda::can_device_access_peer(1, 0) || !cuda::can_device_access_peer(0, 1)) {
    GTEST_SKIP() << "the GPUs cannot access each other's memory";
  }
  for (const int reader : {0, 1}) {
    const Tensor x = filled(100, 7, Device(1 - reader));
    const Tensor y = filled(100, 0, Device(reader));
    cuda::synchronize(Device(0));
    cuda::synchronize(Device(1));
    kernels::Copy kernel{.in_dtype = DType::f32,
                         .out_dtype = DType::f32,
                         .loop = detail::loop_over(x.shape()),
                         .out = detail::operand(y.raw(), x.shape()),
                         .in = detail::operand(x.raw(), x.shape())};
    kernels::launch(kernels::context_for(Device(reader)), kernel);
    EXPECT_TRUE(all_are(y, 7));
  }
}

TEST(CudaTransfer, BetweenGpusOnStreamsOfTheirOwn) {
  TANDEM_NEEDS_GPUS(2);
  const cuda::Stream a("cuda:0");
  const cuda::Stream b("cuda:1");
  const cuda::StreamScope first(a);
  const cuda::StreamScope second(b);
  for (int i = 0; i < 10; ++i) {
    Tensor x = filled(5000, i, "cuda:0");
    Tensor y = x.to("cuda:1") + 1;
    x.fill_(1000);  // after the copy
    x = y.to("cuda:0");
    y = Tensor();
    filled(5000, 77, "cuda:1");
    EXPECT_TRUE(all_are(x, i + 1));
  }
}

TEST(CudaTransfer, PinnedMemory) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor x = some({100, 3}, DType::f32, "cpu");
  EXPECT_FALSE(x.is_pinned());
  const Tensor pinned = x.t().pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.is_contiguous());
  EXPECT_TRUE(same_bits(pinned, x.t()));
  EXPECT_EQ(pinned.pin_memory().raw().data(), pinned.raw().data());
  EXPECT_TRUE(pinned.slice(0, 1, 2).is_pinned());
  EXPECT_THROW(x.to("cuda:0").pin_memory(), DeviceError);
  EXPECT_FALSE(x.to("cuda:0").is_pinned());
  for (const DType dtype : kTypes) {
    EXPECT_TRUE(same_bits(some({9}, dtype, "cpu").pin_memory(), some({9}, dtype, "cpu")));
    EXPECT_TRUE(some({0}, dtype, "cpu").pin_memory().is_contiguous());
  }
}

TEST(CudaTransfer, WithoutWaiting) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream stream;
  const cuda::StreamScope scope(stream);
  for (int i = 0; i < 20; ++i) {
    Tensor pinned = full({3000}, static_cast<double>(i)).pin_memory();
    Tensor there = pinned.to("cuda:0", true);
    pinned = Tensor();                          // memory is kept until it was read
    full({3000}, 500.0).pin_memory();           // and is not reused before
    Tensor back = (there + 1).to("cpu", true);  // its GPU memory may be freed as well
    there = Tensor();
    stream.synchronize();
    EXPECT_TRUE(all_are(back, i + 1));
  }
}

TEST(CudaTransfer, ItemsOfAllTypes) {
  TANDEM_NEEDS_GPUS(1);
  for (const Device device : devices()) {
    for (const DType dtype : kTypes) {
      EXPECT_EQ(full({}, 1.0, {.device = device}).to(dtype).item(), 1) << dtype;
    }
  }
}

TEST(CudaTransfer, DevicesDoNotMix) {
  TANDEM_NEEDS_GPUS(1);
  for (const Device a : devices()) {
    for (const Device b : devices()) {
      const Tensor x = ones({3, 3}, {.device = a});
      const Tensor y = ones({3, 3}, {.device = b});
      if (a == b) {
        EXPECT_TRUE(all_are(x + y, 2));
        continue;
      }
      EXPECT_THROW(x + y, DeviceError);
      EXPECT_THROW(x.matmul(y), DeviceError);
      EXPECT_THROW(x.pow(y), DeviceError);
      const std::string text = message_of<DeviceError>([&] { x* y; });
      EXPECT_NE(text.find(to_string(a)), std::string::npos) << text;
      EXPECT_NE(text.find(to_string(b)), std::string::npos) << text;
    }
  }
}

TEST(CudaTransfer, LoaderSendsWhatTheCpuLoads) {
  TANDEM_NEEDS_GPUS(1);
  const data::TensorDataset set(some({37, 4}, DType::f32, "cpu"), some({37}, DType::i64, "cpu"));
  for (const Device device : devices()) {
    for (const int workers : {0, 1, 3}) {
      data::DataLoader here(set, {.batch_size = 5, .shuffle = true, .seed = 3});
      data::DataLoader there(set,
                             {.batch_size = 5, .shuffle = true, .num_workers = workers, .seed = 3, .device = device});
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::vector<data::Example> expected;
        for (const auto& batch : here)
          expected.push_back(batch);
        std::vector<data::Example> found;
        for (const auto& batch : there) {
          EXPECT_EQ(batch.x.device(), device);
          found.push_back({batch.x + 0, batch.y});  // uses the batch at once
        }
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(same_bits(found[i].x, expected[i].x)) << device << workers;
          EXPECT_TRUE(same_bits(found[i].y, expected[i].y)) << device << workers;
        }
      }
    }
  }
}

TEST(CudaTransfer, LoaderOfADataSetOnAGpu) {
  TANDEM_NEEDS_GPUS(1);
  for (const Device device : devices()) {
    for (const int workers : {0, 2}) {
      const data::TensorDataset set(some({11, 4}, DType::f32, "cuda:0"), some({11}, DType::i64, "cpu"));
      data::DataLoader loader(set, {.batch_size = 4, .num_workers = workers, .device = device});
      std::int64_t first = 0;
      for (const auto& [x, y] : loader) {
        const std::int64_t end = first + x.size(0);
        EXPECT_TRUE(same_bits(x, some({11, 4}, DType::f32, "cpu").slice(0, first, end))) << device << workers;
        EXPECT_TRUE(same_bits(y, some({11}, DType::i64, "cpu").slice(0, first, end))) << device << workers;
        EXPECT_EQ(x.device(), device);
        first = end;
      }
      EXPECT_EQ(first, 11);
    }
  }
}

TEST(CudaTransfer, LeavingALoaderEarlyIsSafe) {
  TANDEM_NEEDS_GPUS(1);
  for (int i = 0; i < 5; ++i) {
    data::DataLoader loader(data::TensorDataset(some({37, 4}, DType::f32, "cpu")),
                            {.batch_size = 2, .num_workers = 2, .device = "cuda:0"});
    Tensor kept;
    for (const auto& [x, y] : loader) {
      kept = x;
      break;
    }
    EXPECT_TRUE(same_bits(kept, some({37, 4}, DType::f32, "cpu").slice(0, 0, 2)));
  }
}

}  // namespace
}  // namespace tandem
