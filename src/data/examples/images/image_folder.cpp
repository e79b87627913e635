#include "data/examples/images/image_folder.h"
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <system_error>
#include "base/fail.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "data/examples/images/image_dataset.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> list(const std::string& directory, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || it->is_directory() != folders) continue;
    if (folders || has_image_name(name)) names.push_back(name);
  }
  if (error) fail_user("cannot read the folder '", directory, "': ", error.message());
  std::ranges::sort(names);
  return names;
}

// Pictures that are left out because their formats are not read.
class ForeignImages {
 public:
  void count(const std::string& folder) {
    std::error_code ignored;
    for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored))
      if (const std::string ending = foreign_image_ending(it->path().filename().string()); !ending.empty())
        ++counts_[ending], ++total_;
  }
  void count_all(const std::string& directory) {
    count(directory);
    for (const std::string& folder : list(directory, true)) count_all(directory + "/" + folder);
  }
  int64_t total() const { return total_; }
  std::string text() const {
    std::string text;
    for (const auto& [ending, count] : counts_)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + ending;
    return text + " (Linnet reads PNG, JPEG and BMP: `mogrify -format png *" + counts_.begin()->first +
           "` writes such files)";
  }
  // One line about all that were counted.
  void warn(const std::string& directory, size_t read) const {
    if (total_ > 0)
      log_warning(std::to_string(total_) + " of " + std::to_string(total_ + static_cast<int64_t>(read)) +
                  " pictures in '" + directory + "' are left out: " + text());
  }

 private:
  std::map<std::string, int64_t> counts_;  // by ending
  int64_t total_ = 0;
};

// `labels`: the class of each.
std::vector<std::string> list_images(const std::string& directory, const std::vector<std::string>& class_names,
                                     std::vector<int32_t>& labels) {
  std::vector<std::string> files;
  ForeignImages foreign;
  for (const std::string& name : list(directory, true)) {
    const auto found = std::ranges::find(class_names, name);
    const std::string folder = directory + "/" + name;
    if (found == class_names.end()) fail_user("'", folder, "': the training images have no class '", name, "'");
    const auto images = list(folder, false);
    foreign.count(folder);
    if (images.empty())
      fail_user("'", folder, "' holds no images (.png, .jpg, .jpeg, .bmp)",
                foreign.total() > 0 ? "; left out are " + foreign.text() : "");
    for (const std::string& image : images) files.push_back(folder + "/" + image);
    labels.resize(files.size(), static_cast<int32_t>(found - class_names.begin()));
  }
  if (files.empty()) fail_user("'", directory, "' holds no folders of images, one for each class");
  foreign.warn(directory, files.size());
  return files;
}

std::string size_text(const ImageInfo& info) { return std::to_string(info.width) + "x" + std::to_string(info.height); }

// The one size of all files, with the most channels any of them has.
ImageInfo common_info(const std::vector<std::string>& files, int64_t size, ThreadPool& pool) {
  std::vector<ImageInfo> infos(files.size());
  pool.run(static_cast<int64_t>(files.size()),
           [&](int64_t i, int) { infos[static_cast<size_t>(i)] = image_info(files[static_cast<size_t>(i)]); });
  ImageInfo common = infos[0];
  for (size_t i = 0; i < files.size(); ++i) {
    const ImageInfo& info = infos[i];
    if (size == 0 && (info.height != common.height || info.width != common.width))
      fail_user("'", files[i], "' is ", size_text(info), " pixels, but '", files[0], "' is ", size_text(common),
                ": image_size makes them alike (--set image_size=64)");
    common.channels = std::max(common.channels, info.channels);
  }
  if (size > 0) common.height = common.width = size;
  return common;
}

bool is_grey(std::span<const uint8_t> pixels) {
  for (size_t i = 0; i < pixels.size(); i += 3)
    if (pixels[i] != pixels[i + 1] || pixels[i] != pixels[i + 2]) return false;
  return true;
}

// Decodes files until one has color.
bool is_grey_in_files(const ImageDataset& dataset, ThreadPool& pool) {
  constexpr int64_t kAtOnce = 64;
  std::vector<std::vector<uint8_t>> images(static_cast<size_t>(pool.size()),
                                           std::vector<uint8_t>(static_cast<size_t>(dataset.image_bytes())));
  std::atomic<bool> grey = true;
  for (int64_t first = 0; first < dataset.count && grey; first += kAtOnce)
    pool.run(std::min(kAtOnce, dataset.count - first), [&](int64_t i, int worker) {
      std::vector<uint8_t>& image = images[static_cast<size_t>(worker)];
      dataset.read(first + i, image);
      if (!is_grey(image)) grey = false;
    });
  return grey;
}

void drop_equal_channels(ImageDataset& dataset, ThreadPool& pool) {
  if (!dataset.in_memory()) {
    if (is_grey_in_files(dataset, pool)) dataset.channels = 1;
    return;
  }
  std::vector<uint8_t>& pixels = dataset.pixels;
  if (!is_grey(pixels)) return;
  for (size_t i = 0; i < pixels.size() / 3; ++i) pixels[i] = pixels[3 * i];
  pixels.resize(pixels.size() / 3);
  pixels.shrink_to_fit();
  dataset.channels = 1;
}

}  // namespace

std::vector<std::string> list_folders(const std::string& directory) { return list(directory, true); }

bool has_class_folders(const std::string& directory) {
  return std::ranges::any_of(list_folders(directory),
                             [&](const std::string& name) { return !list(directory + "/" + name, false).empty(); });
}

std::vector<std::string> find_images(const std::string& directory) {
  std::vector<std::string> paths;
  for (const std::string& name : list(directory, false)) paths.push_back(directory + "/" + name);
  for (const std::string& folder : list_folders(directory))
    std::ranges::move(find_images(directory + "/" + folder), std::back_inserter(paths));
  return paths;
}

void warn_of_foreign_images(const std::string& directory, size_t read) {
  ForeignImages foreign;
  foreign.count_all(directory);
  foreign.warn(directory, read);
}

ImageDataset read_image_folder(const std::string& directory, const std::vector<std::string>& class_names,
                               const ImageLoading& loading) {
  const std::vector<std::string> names = class_names.empty() ? list_folders(directory) : class_names;
  for (const std::string& name : names)
    if (invalid_utf8_at(name) != std::string::npos)
      fail_user("'", directory, "/", name, "': the name of a class must be valid UTF-8");
  std::vector<int32_t> labels;
  ImageDataset dataset = read_image_files(list_images(directory, names, labels), loading);
  dataset.labels = std::move(labels), dataset.class_names = names;
  return dataset;
}

ImageDataset read_image_files(const std::vector<std::string>& files, const ImageLoading& loading) {
  ImageDataset dataset;
  ThreadPool pool(loading.threads > 0 ? loading.threads : available_threads());
  const ImageInfo info = common_info(files, loading.size, pool);
  dataset.count = static_cast<int64_t>(files.size());
  dataset.height = info.height;
  dataset.width = info.width;
  dataset.channels = info.channels;
  const auto bytes = static_cast<size_t>(dataset.image_bytes());
  dataset.files = {.paths = {}, .fit = loading.fit, .channels = info.channels};
  if (static_cast<uint64_t>(files.size() * bytes) > loading.memory) {
    dataset.files.paths = files;
  } else {
    dataset.pixels.resize(files.size() * bytes);
    pool.run(dataset.count, [&](int64_t i, int) {
      const auto at = static_cast<size_t>(i);
      read_fitted_image(files[at], info, loading.fit, std::span(dataset.pixels).subspan(at * bytes, bytes));
    });
  }
  if (dataset.channels == 3) drop_equal_channels(dataset, pool);
  return dataset;
}

void make_color(ImageDataset& dataset) {
  if (dataset.channels != 1) return;
  dataset.channels = 3;
  if (!dataset.in_memory()) return;
  std::vector<uint8_t> color(dataset.pixels.size() * 3);
  for (size_t i = 0; i < dataset.pixels.size(); ++i)
    std::fill_n(color.begin() + static_cast<ptrdiff_t>(3 * i), 3, dataset.pixels[i]);
  dataset.pixels = std::move(color);
}

}  // namespace linnet
