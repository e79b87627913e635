#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "data/examples/batch.h"
#include "data/examples/images/image_dataset.h"
#include "data/examples/text/record_reader.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

std::string lower_ending(const std::string& path) {
  return lower_ascii(path.substr(std::min(path.rfind('.'), path.size())));
}

bool has_image_name(const std::string& path) {
  const std::string ending = lower_ending(path);
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".bmp";
}

// The lowercase ending of an image format that is not read; "" for other files.
std::string foreign_image_ending(const std::string& path) {
  static constexpr const char* kEndings[] = {".webp", ".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2",
      ".jxl", ".tga", ".psd", ".ppm", ".pgm", ".pnm", ".svg", ".jfif"};
  const std::string ending = lower_ending(path);
  return contains(kEndings, ending) ? ending : "";
}

// Names of the files or folders in a folder, sorted, without hidden ones. Also without links that lead to one of the
// folders `seen` or above it, where a search would find itself again.
std::vector<std::string> list(const std::string& directory, bool folders, const std::set<fs::path>& seen = {}) {
  std::vector<std::string> names;
  std::error_code error, broken;
  const auto leads_back = [&](const fs::path& link) {
    const fs::path target = fs::canonical(link, broken);
    return std::ranges::any_of(seen, [&](const fs::path& folder) {
      const fs::path rest = folder.lexically_relative(target);
      return !rest.empty() && *rest.begin() != "..";
    });
  };
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || it->is_directory(broken) != folders) continue;
    if (!it->is_symlink(broken) || !leads_back(it->path())) names.push_back(name);
  }
  if (error) fail_user("cannot read the folder '", directory, "': ", error.message());
  std::ranges::sort(names);
  return names;
}

// The files in a folder, then those of the folders in it, each folder once. `seen`: those the search has been in.
void for_each_file_below(
    const std::string& directory, FunctionRef<void(const std::string& path)> use, std::set<fs::path>& seen) {
  if (!seen.insert(fs::weakly_canonical(directory)).second) return;
  for (const std::string& name : list(directory, false)) use(directory + "/" + name);
  for (const std::string& name : list(directory, true, seen)) for_each_file_below(directory + "/" + name, use, seen);
}

// Counts of skipped images by ending.
using ForeignImages = std::map<std::string, int64_t>;

std::vector<std::string> images_below(const std::string& directory, ForeignImages& foreign) {
  std::vector<std::string> paths;
  std::set<fs::path> seen;
  const auto add = [&](const std::string& path) {
    if (has_image_name(path)) paths.push_back(path);
    else if (const std::string ending = foreign_image_ending(path); !ending.empty()) ++foreign[ending];
  };
  for_each_file_below(directory, add, seen);
  return paths;
}

std::string text_of(const ForeignImages& counts) {
  const auto text =
      joined(counts, ", ", [](const auto& entry) { return std::to_string(entry.second) + " " + entry.first; });
  return text + " (Linnet reads PNG, JPEG and BMP: `mogrify -format png *" + counts.begin()->first +
         "` writes such files)";
}

// Warns of all in one line.
void warn_of(const ForeignImages& counts, const std::string& directory, size_t read) {
  const auto total = sum_of<int64_t>(counts, [](const auto& ending) { return ending.second; });
  if (total > 0)
    log_warning(text_of_parts(total, " of ", total + static_cast<int64_t>(read), " pictures in '", directory,
        "' are left out: ", text_of(counts)));
}

// `labels`: receives the class of each.
std::vector<std::string> list_images(
    const std::string& directory, const std::vector<std::string>& class_names, std::vector<int32_t>& labels) {
  std::vector<std::string> files;
  ForeignImages foreign;
  for (const std::string& name : list_folders(directory)) {
    const auto found = std::ranges::find(class_names, name);
    const std::string folder = directory + "/" + name;
    if (found == class_names.end()) fail_user("'", folder, "': the training images have no class '", name, "'");
    const std::vector<std::string> images = images_below(folder, foreign);
    if (images.empty())
      fail_user("'", folder, "' holds no images (.png, .jpg, .jpeg, .bmp)",
          foreign.empty() ? "" : "; left out are " + text_of(foreign));
    files.insert(files.end(), images.begin(), images.end());
    labels.resize(files.size(), static_cast<int32_t>(found - class_names.begin()));
  }
  if (files.empty()) fail_user("'", directory, "' holds no folders of images, one for each class");
  warn_of(foreign, directory, files.size());
  return files;
}

std::string size_text(const ImageInfo& info) { return std::to_string(info.width) + "x" + std::to_string(info.height); }

// The one size of all files, with the most channels of any.
ImageInfo common_info(const std::vector<std::string>& files, int64_t size, ThreadPool& pool) {
  std::vector<ImageInfo> infos(files.size());
  pool.run(std::ssize(files), [&](int64_t i, int) { infos[i] = image_info(files[i]); });
  ImageInfo common = infos[0];
  for (size_t i = 0; i < files.size(); ++i) {
    const ImageInfo& info = infos[i];
    if (size == 0 && (info.height != common.height || info.width != common.width))
      fail_user("'", files[i], "' is ", size_text(info), " pixels, but '", files[0], "' is ", size_text(common),
          ": one size for all makes them alike (image_size=64)");
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
  std::vector<std::vector<uint8_t>> images(pool.size(), std::vector<uint8_t>(dataset.image_bytes()));
  std::atomic<bool> grey = true;
  for (int64_t first = 0; first < dataset.count && grey; first += kAtOnce)
    pool.run(std::min(kAtOnce, dataset.count - first), [&](int64_t i, int worker) {
      std::vector<uint8_t>& image = images[worker];
      dataset.read(first + i, image);
      if (!is_grey(image)) grey = false;
    });
  return grey;
}

void drop_equal_channels(ImageDataset& dataset, ThreadPool& pool) {
  if (!(dataset.in_memory() ? is_grey(dataset.pixels) : is_grey_in_files(dataset, pool))) return;
  dataset.channels = 1;
  std::vector<uint8_t>& pixels = dataset.pixels;
  for (size_t i = 0; i < pixels.size() / 3; ++i) pixels[i] = pixels[3 * i];
  pixels.resize(pixels.size() / 3);
  pixels.shrink_to_fit();
}

// The path as `directory` spells it; empty if there is none.
std::string find_idx(const std::string& directory, const std::string& part, const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"}) {
      const std::string path = directory + "/" + part + separator + kind + ending;
      if (file_exists(path)) return path;
    }
  return "";
}

ImageDataset read_idx_part(const std::string& directory, const std::string& part) {
  const std::string images = find_idx(directory, part + "-images", "idx3-ubyte");
  const std::string labels = find_idx(directory, part + "-labels", "idx1-ubyte");
  if (images.empty()) fail_user("'", directory, "' has no ", part, "-images-idx3-ubyte[.gz] beside its other files");
  if (labels.empty()) fail_user("'", images, "' has no labels beside it: ", part, "-labels-idx1-ubyte[.gz]");
  return read_idx_images(images, labels);
}

std::string size_text(const ImageDataset& images) {
  return size_text(ImageInfo{images.height, images.width, 0}) + "x" + std::to_string(images.channels);
}

// Checks that a part fits the training images and gives it their class names.
void conform(const ImageDataset& train, ImageDataset& part, const std::string& name) {
  if (part.count == 0) return;
  if (part.height != train.height || part.width != train.width || part.channels != train.channels)
    fail_user(name, ": its images are ", size_text(part), ", the training images ", size_text(train));
  const int32_t largest = *std::ranges::max_element(part.labels);
  if (largest >= train.classes())
    fail_user(
        name, ": label ", largest, " does not occur among the ", train.classes(), " classes of the training images");
  part.class_names = train.class_names;
}

ImageSplits load_idx(const std::string& directory) {
  ImageSplits splits{.train = read_idx_part(directory, "train"), .test = read_idx_part(directory, "t10k")};
  conform(splits.train, splits.test, "'" + directory + "' t10k");
  return splits;
}

ImageSplits load_folders(const std::string& directory, const ImageLoading& loading) {
  ImageSplits splits{.train = read_image_folder(directory + "/train", {}, loading)};
  const auto& names = splits.train.class_names;
  ImageLoading rest = loading;  // the parts share the memory
  rest.memory -= splits.train.pixels.size();
  for (const auto& [name, part] : {std::pair{"valid", &splits.validation}, {"val", &splits.validation},
           {"validation", &splits.validation}, {"test", &splits.test}})
    if (part->count == 0 && file_exists(directory + "/" + name)) {
      *part = read_image_folder(directory + "/" + name, names, rest);
      rest.memory -= part->pixels.size();
    }
  make_alike(splits, directory);
  return splits;
}

// Divides folders of classes: a share for the test, and an equal one for validation.
ImageSplits divide_folders(const std::string& directory, const ImageLoading& loading, const ImageDivision& division) {
  ImageSplits splits{.train = read_image_folder(directory, {}, loading)};
  const int64_t all = splits.train.count;
  const auto take = [&](double share, uint64_t seed) {
    return take_images(splits.train, choose_held_out(splits.train.labels, share, seed));
  };
  splits.test = take(division.share, division.seed);
  const double rest = division.share * static_cast<double>(all) / static_cast<double>(splits.train.count);
  if (division.held_out == 0) splits.validation = take(rest, division.seed + 1);
  return splits;
}

ImageSplits load_parts(const std::string& directory, const ImageLoading& loading, const ImageDivision& division) {
  if (!file_exists(directory)) fail_user("there is no image directory '", directory, "'");
  for (const char* part : {"train", "t10k"})
    if (!find_idx(directory, std::string(part) + "-images", "idx3-ubyte").empty()) return load_idx(directory);
  if (file_exists(directory + "/train")) return load_folders(directory, loading);
  if (has_class_folders(directory)) return divide_folders(directory, loading, division);
  fail_user("'", directory,
      "' holds no images Linnet knows: neither a folder of .png, .jpg or .bmp files for each class, nor train/ and "
      "test/ with such folders, nor train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the same two of "
      "t10k");
}
}  // namespace

std::vector<std::string> find_images(const std::string& directory, bool warn) {
  ForeignImages foreign;
  const std::vector<std::string> paths = images_below(directory, foreign);
  if (warn && !paths.empty()) warn_of(foreign, directory, paths.size());
  return paths;
}

std::vector<std::string> list_folders(const std::string& directory) {
  return list(directory, true, {fs::weakly_canonical(directory)});
}

bool has_class_folders(const std::string& directory) {
  const std::string train = directory + "/train";
  if (fs::is_directory(train) && std::ranges::none_of(list(train, false), has_image_name))
    return false;  // a part, which has folders of classes
  return std::ranges::any_of(
      list_folders(directory), [&](const std::string& name) { return !find_images(directory + "/" + name).empty(); });
}

ImageDataset read_image_folder(
    const std::string& directory, const std::vector<std::string>& class_names, const ImageLoading& loading) {
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
  ThreadPool pool(threads_or_all(loading.threads));
  const ImageInfo info = common_info(files, loading.size, pool);
  ImageDataset dataset{
      .count = std::ssize(files), .height = info.height, .width = info.width, .channels = info.channels};
  const auto bytes = static_cast<size_t>(dataset.image_bytes());
  dataset.files = {.paths = {}, .fit = loading.fit, .channels = info.channels};
  if (static_cast<uint64_t>(files.size() * bytes) > loading.memory) {
    dataset.files.paths = files;
  } else {
    dataset.pixels.resize(files.size() * bytes);
    pool.run(dataset.count, [&](int64_t i, int) {
      read_fitted_image(files[i], info, loading.fit, std::span(dataset.pixels).subspan(i * bytes, bytes));
    });
  }
  if (dataset.channels == 3) drop_equal_channels(dataset, pool);
  return dataset;
}

void make_color(ImageDataset& dataset) {
  if (dataset.channels != 1) return;
  dataset.channels = 3;
  std::vector<uint8_t> color(dataset.pixels.size() * 3);
  for (size_t i = 0; i < color.size(); ++i) color[i] = dataset.pixels[i / 3];
  dataset.pixels = std::move(color);
}

IdxArray read_idx(const std::string& path) {
  GzipFile reader(path);
  std::array<uint8_t, 4> magic{};
  if (reader.read(magic.data(), 4) < 4 || magic[0] != 0 || magic[1] != 0 || magic[3] < 1 || magic[3] > 4)
    fail_user("'", path, "' is not an IDX file: it does not begin with 0 0 TYPE AXES");
  if (magic[2] != 8) fail_user("'", path, "' holds elements of IDX type ", magic[2], "; Linnet reads bytes (8)");
  IdxArray array;
  uint64_t count = 1;
  for (int axis = 0; axis < magic[3]; ++axis) {
    std::array<uint8_t, 4> size{};
    if (reader.read(size.data(), 4) < 4) fail_user("'", path, "' is truncated: it ends within its header");
    const uint64_t value = uint64_t{size[0]} << 24 | uint64_t{size[1]} << 16 | uint64_t{size[2]} << 8 | size[3];
    array.sizes.push_back(static_cast<int64_t>(value));
    // The product of four sizes may overflow 64 bits, so it is clamped.
    count = value != 0 && count > reader.most_bytes() / value ? reader.most_bytes() + 1 : count * value;
  }
  const std::string truncated = "'" + path + "' is truncated: its header promises ";
  if (count > reader.most_bytes()) fail_user(truncated, "more than the file can hold");
  reader.check_size(count);
  array.values.resize(count);
  const size_t got = reader.read(array.values.data(), count);
  if (got < count) fail_user(truncated, count, " bytes, ", got, " follow");
  uint8_t more = 0;
  if (reader.read(&more, 1) > 0) fail_user("'", path, "' goes on after the ", count, " bytes its header promises");
  return array;
}

ImageDataset read_idx_images(const std::string& images_path, const std::string& labels_path) {
  IdxArray images = read_idx(images_path), labels = read_idx(labels_path);
  const size_t axes = images.sizes.size();
  if (axes < 3) fail_user("'", images_path, "' has ", axes, " axes; images have 3 or 4. Are these the labels?");
  if (labels.sizes.size() != 1) fail_user("'", labels_path, "' has ", labels.sizes.size(), " axes; labels have 1");
  if (images.sizes[0] != labels.sizes[0])
    fail_user("'", images_path, "' has ", images.sizes[0], " images, but '", labels_path, "' has ", labels.sizes[0],
        " labels");
  if (images.values.empty()) fail_user("'", images_path, "' holds no images");
  ImageDataset dataset{.count = images.sizes[0],
      .height = images.sizes[1],
      .width = images.sizes[2],
      .channels = axes > 3 ? images.sizes[3] : 1,
      .pixels = std::move(images.values)};
  dataset.labels.assign(labels.values.begin(), labels.values.end());
  const int32_t largest = *std::max_element(dataset.labels.begin(), dataset.labels.end());
  for (int32_t label = 0; label <= largest; ++label) dataset.class_names.push_back(std::to_string(label));
  return dataset;
}

// A part may be grey by chance, so all get the most channels.
void make_alike(ImageSplits& splits, const std::string& directory) {
  const auto parts = {&splits.train, &splits.validation, &splits.test};
  if (std::ranges::any_of(parts, [](const ImageDataset* part) { return part->channels == 3; }))
    for (ImageDataset* part : parts) make_color(*part);
  conform(splits.train, splits.validation, "'" + directory + "/valid'");
  conform(splits.train, splits.test, "'" + directory + "/test'");
}

ImageSplits load_image_splits(
    const std::string& directory, const ImageLoading& loading, const ImageDivision& division) {
  ImageSplits splits = load_parts(directory, loading, division);
  if (splits.train.height < 2 || splits.train.width < 2)
    fail_user("the images in '", directory, "' are ", size_text(splits.train),
        " (width x height x channels); at least 2x2 pixels are needed");
  if (splits.validation.count > 0) return splits;
  const int64_t all = splits.train.count;
  int64_t count = division.held_out;
  if (count == 0) count = std::max<int64_t>(1, std::llround(division.share * static_cast<double>(all)));
  splits.validation = split_off(splits.train, std::min(count, all / 2));
  return splits;
}
}  // namespace linnet
