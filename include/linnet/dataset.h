// Data to train on: samples with named fields, and the loader that makes batches of them.
//
//   Dataset data = Dataset::idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz");
//   auto [train, test] = data.split(0.9, /*seed=*/1);
//   Loader loader(train, {.batch = 128, .shuffle = true});
//   for (const Arrays& batch : loader) ...                      // one epoch
#pragma once
#include <concepts>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "linnet/arrays.h"

namespace linnet {
class PretrainedTokenizer;

// Fields of the same number of samples. A field is dense, where all samples have the same shape, or a sequence of ids
// of any length. Copies share the memory; they are never changed by loaders, which may run in other threads.
class Dataset {
 public:
  // No fields yet.
  Dataset();
  // Copies share the data.
  Dataset(const Dataset& other);
  // Copies share the data.
  Dataset& operator=(const Dataset& other);
  // Frees the data with the last copy.
  ~Dataset();

  // Adds a dense field: `values` holds one array of `sample_shape` after another; int64_t becomes i32, bool u8. Throws
  // Error(kUser) when the values are no whole number of samples, another number than other fields have, an integer does
  // not fit, or the name is taken.
  template <class T> Dataset& add(const std::string& name, const Shape& sample_shape, const std::vector<T>& values) {
    const auto kept = stored<T>(name, values);
    return add_bytes(name, {dtype_of<Stored<T>>(), sample_shape}, std::as_bytes(std::span(kept)));
  }
  // The same from bytes, which are copied unless `owner` is set: that keeps them, and nobody changes them.
  Dataset& add_bytes(const std::string& name, const TensorType& sample_type, std::span<const std::byte> bytes,
      std::shared_ptr<const void> owner = {});
  // Adds a field of sequences of ids. Batches have it as i32 [rows, length], padded with 0, and `name`_length i32
  // [rows].
  Dataset& add_sequences(const std::string& name, std::vector<std::vector<int32_t>> sequences);
  // Adds a dense field from structs: value(item) is a number or a range of numbers, always as many.
  template <class Item, class Function>
  Dataset& add(const std::string& name, const std::vector<Item>& items, Function value) {
    using Value = std::invoke_result_t<Function, const Item&>;
    if constexpr (std::is_arithmetic_v<Value>) {
      std::vector<Value> values;
      for (const Item& item : items) values.push_back(value(item));
      return add(name, Shape{}, values);
    } else {
      using Element = std::remove_cvref_t<decltype(*std::begin(std::declval<const Value&>()))>;
      std::vector<Element> values;
      size_t width = 0;
      for (const Item& item : items) {
        const Value& range = value(item);
        const size_t before = values.size();
        values.insert(values.end(), std::begin(range), std::end(range));
        if (&item == items.data()) width = values.size();
        if (values.size() - before != width) fail_width(name);
      }
      return add(name, Shape{static_cast<int64_t>(width)}, values);
    }
  }

  // Samples of any shapes from a function, which may be called by several threads at once and for each sample in each
  // epoch. `types` are those of one sample.
  using Function = std::function<void(int64_t index, Arrays& sample)>;
  // See Function.
  static Dataset from_function(int64_t size, const InputTypes& types, Function function);
  // MNIST's files, plain or gzip: fields "images" u8 [H, W, C] and "labels" i32.
  static Dataset idx(const std::string& images, const std::string& labels);
  // FOLDER/CLASS/*.png, .jpg, .jpeg, .bmp: fields "images" u8 [size, size, C], cropped in the middle and scaled, and
  // "labels" i32, the number of the class folder in sorted order. `size` 0: as they are, all alike.
  static Dataset image_folder(const std::string& folder, int64_t size = 0);
  // A text as token ids, cut into chunks: fields "tokens" and "targets" i32 [length], where targets are the tokens one
  // further on. Text files are UTF-8, plain or gzip; their problems are Error(kUser).
  static Dataset text(const std::string& path, const PretrainedTokenizer& tokenizer, int64_t length);
  // The same of ids that the program has.
  static Dataset chunks(const std::vector<int32_t>& ids, int64_t length);
  // Lines "label<TAB>text" or "text<TAB>label": `label_column` and `text_column` count from 0. Fields "tokens" (a
  // sequence) and "labels" i32, which are the numbers in the file. Blank lines are skipped; one without these columns
  // is an Error(kUser).
  static Dataset tsv(const std::string& path, const PretrainedTokenizer& tokenizer, int64_t text_column,
      int64_t label_column, bool header, int64_t max_length);

  // How many samples there are.
  int64_t size() const;
  // Types of one sample's dense fields, and i32 [0] for sequences.
  InputTypes sample_types() const;
  // One sample's dense fields, and its sequences as i32 [length]. Throws Error(kUser) for an index that there is not.
  Arrays sample(int64_t index) const;
  // Length of the longest sequence of a sample; 0 where there are none.
  int64_t length(int64_t index) const;
  // The samples with these indices, in this order.
  Dataset select(std::vector<int64_t> indices) const;
  // A part of `fraction` of the samples, drawn by the seed, and the others; both in their order.
  std::pair<Dataset, Dataset> split(double fraction, uint64_t seed = 1) const;

 private:
  struct State;
  [[noreturn]] static void fail_width(const std::string& name);
  std::shared_ptr<State> state_;
};

// How a Loader makes batches.
struct LoaderOptions {
  // Rows of a batch.
  int64_t batch = 32;
  // Samples in an order that the seed and the epoch decide; else in their own.
  bool shuffle = false;
  // Of the order.
  uint64_t seed = 1;
  // Whether samples that do not fill a batch are left out; else, with `pad_last`, the last batch is padded with rows of
  // zeros, whose "labels" and "targets" are -1 where they are i32, and Arrays::samples says how many rows count.
  bool drop_last = false;
  // Threads that make batches ahead; 0: batches are made when they are asked for.
  int workers = 1;
  // Batches that are made ahead at most, for each worker.
  int prefetch = 2;
  // Lengths that sequences are padded to; a sample goes to the shortest that it fits. Empty: the longest sequence. A
  // sample that is longer than all is an Error(kUser).
  std::vector<int64_t> buckets = {};
  // Whether the last batch is padded; else it has as many rows as samples, and shapes() has its shape beside that of
  // the others. Losses of any form and batch norms are right then.
  bool pad_last = true;
};

// Where a loader is: the next batch that it gives.
struct LoaderPosition {
  // From 0.
  int64_t epoch = 0;
  // In the epoch, from 0.
  int64_t batch = 0;
  // Whether both are equal.
  bool operator==(const LoaderPosition&) const = default;
};

// Batches of a dataset, epoch after epoch. The sequence of batches depends on data and options alone, never on the
// number of workers.
class Loader {
 public:
  // Throws Error(kUser) for options out of range, an empty dataset and a dataset without a whole batch.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  // Stops the workers.
  ~Loader();

  // The types of all batches that it gives, one for each bucket: what a Learner is constructed with.
  std::vector<InputTypes> shapes() const;
  // Batches of an epoch.
  int64_t batches() const;
  // The next batch, valid until the next call; begins the next epoch behind the last. An exception of a dataset's
  // function reappears here.
  const Arrays& next();
  // Of the batch that next() gives.
  LoaderPosition position() const;
  // Goes to a position, for example that of a saved training state.
  void seek(const LoaderPosition& position);

  // Visits the batches of the epoch in which the loader is, from where it is.
  class Iterator {
   public:
    // Of the loader; null: behind the last batch.
    explicit Iterator(Loader* loader);
    // The batch.
    const Arrays& operator*() const { return *batch_; }
    // The next one.
    Iterator& operator++();
    // Whether both are behind the last batch.
    bool operator==(const Iterator& other) const { return loader_ == other.loader_; }

   private:
    Loader* loader_;
    const Arrays* batch_ = nullptr;
    int64_t epoch_ = 0;
  };
  // From where the loader is.
  Iterator begin() { return Iterator(this); }
  // Behind the last batch of the epoch.
  Iterator end() { return Iterator(nullptr); }

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace linnet
