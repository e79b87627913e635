// The batches of a loader follow from data, options and position alone.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <algorithm>
#include <numeric>

namespace {
using namespace linnet;

Dataset counted(int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  Dataset data;
  data.add("id", Shape{}, ids);
  return data.add("labels", Shape{}, ids);
}

std::vector<int32_t> ids_of(Loader& loader, int batches) {
  std::vector<int32_t> ids;
  for (int i = 0; i < batches; ++i) {
    const Arrays& batch = loader.next();
    const auto values = batch.get<int32_t>("id");
    ids.insert(ids.end(), values.begin(), values.begin() + batch.samples);
  }
  return ids;
}

TEST(Loader, GivesTheSameBatchesWithAnyNumberOfWorkers) {
  std::vector<std::vector<int32_t>> all;
  for (const int workers : {0, 1, 4}) {
    Loader loader(counted(50), {.batch = 8, .shuffle = true, .seed = 7, .workers = workers});
    all.push_back(ids_of(loader, 20));
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(Loader, AnEpochHasEverySampleOnceAndTheNextAnotherOrder) {
  Loader loader(counted(50), {.batch = 8, .shuffle = true});
  std::vector<int32_t> first = ids_of(loader, 7), second = ids_of(loader, 7);
  EXPECT_NE(first, second);
  for (std::vector<int32_t>* epoch : {&first, &second}) {
    std::ranges::sort(*epoch);
    ASSERT_EQ(epoch->size(), 50u);
    for (int32_t i = 0; i < 50; ++i) EXPECT_EQ((*epoch)[static_cast<size_t>(i)], i);
  }
}

TEST(Loader, GoesOnWhereItWasSought) {
  Loader loader(counted(50), {.batch = 8, .shuffle = true, .workers = 2});
  ids_of(loader, 9);
  const LoaderPosition position = loader.position();
  EXPECT_EQ(position, (LoaderPosition{1, 2}));
  const std::vector<int32_t> wanted = ids_of(loader, 12);
  Loader other(counted(50), {.batch = 8, .shuffle = true, .workers = 3});
  other.seek(position);
  EXPECT_EQ(ids_of(other, 12), wanted);
}

TEST(Loader, PadsTheLastBatchWithLabelsThatDoNotCount) {
  Loader loader(counted(5), {.batch = 4});
  loader.next();
  const Arrays& last = loader.next();
  EXPECT_EQ(last.samples, 1);
  const auto labels = last.get<int32_t>("labels");
  EXPECT_EQ((std::vector<int32_t>{labels.begin(), labels.end()}), (std::vector<int32_t>{4, -1, -1, -1}));
}

TEST(Loader, BringsAnExceptionOfADatasetsFunctionToItsCaller) {
  const Dataset data = Dataset::from_function(8, {{"x", {DType::kF32, {1}}}}, [](int64_t index, Arrays&) {
    if (index == 5) throw std::runtime_error("sample 5 is damaged");
  });
  Loader loader(data, {.batch = 2, .workers = 2});
  loader.next();
  loader.next();
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_THROW(loader.next(), std::runtime_error);
}

TEST(Loader, ARangeOfItIsOneEpoch) {
  Loader loader(counted(20), {.batch = 8, .drop_last = true});
  for (int epoch = 0; epoch < 2; ++epoch) {
    int count = 0;
    for (const Arrays& batch : loader) count += batch.samples == 8;
    EXPECT_EQ(count, 2);
  }
}
}  // namespace
