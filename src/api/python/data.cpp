// Dataset and Loader.
#include <linnet/dataset.h>
#include <linnet/error.h>
#include <linnet/pretrained_tokenizer.h>

#include "api/python/loader.h"
#include "api/python/python.h"

namespace linnet::python {
namespace {

// A field from an array [samples, ...].
void add_field(Dataset& data, const std::string& name, nb::handle values, nb::handle dtype) {
  const Converted all =
      convert(values, dtype.is_none() ? std::nullopt : std::optional(to_dtype(dtype)), "the field \"" + name + "\"");
  const Shape& shape = all.type.shape;
  if (shape.rank() == 0) fail_user("the field \"" + name + "\" is one number; an array of samples is wanted");
  data.add_bytes(name, {all.type.dtype, Shape(shape.sizes().subspan(1))}, all.bytes);
}

Dataset from_function(int64_t size, const nb::dict& types, nb::object function) {
  const InputTypes expected = to_types(types);
  // Freed with the GIL, whichever thread lets go of it last.
  const std::shared_ptr<nb::object> call(new nb::object(std::move(function)), [](nb::object* kept) {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire gil;
    delete kept;
  });
  return Dataset::from_function(size, expected, [expected, call](int64_t index, Arrays& sample) {
    const nb::gil_scoped_acquire gil;
    try {
      sample = to_arrays(nb::cast<nb::dict>((*call)(index)), expected);
    } catch (const nb::cast_error&) {
      fail_user("the function of a dataset returns a dict of arrays");
    } catch (nb::python_error& error) {
      // The loader's threads hand it on: as a text, which may be copied without the GIL.
      fail_user("the function of a dataset failed: " + nb::cast<std::string>(nb::str(error.value())));
    }
  });
}

nb::dict sample_of(const Dataset& data, int64_t index) { return to_dict(data.sample(index)); }

void add_dataset(nb::module_& module) {
  nb::class_<Dataset>(module, "DatasetCore")
      .def(nb::init<>())
      .def(
          "add",
          [](Dataset& data, const std::string& name, nb::object values, nb::object dtype) {
            add_field(data, name, values, dtype);
          },
          nb::arg("name"), nb::arg("values"), nb::arg("dtype").none())
      .def(
          "add_sequences",
          [](Dataset& data, const std::string& name, std::vector<std::vector<int32_t>> sequences) {
            data.add_sequences(name, std::move(sequences));
          },
          nb::arg("name"), nb::arg("sequences"))
      .def_static("from_function", from_function, nb::arg("size"), nb::arg("types"), nb::arg("function"))
      .def_static("idx", &Dataset::idx, nb::arg("images"), nb::arg("labels"), nb::call_guard<nb::gil_scoped_release>())
      .def_static("image_folder", &Dataset::image_folder, nb::arg("folder"), nb::arg("size"),
                  nb::call_guard<nb::gil_scoped_release>())
      .def_static(
          "text",
          [](const std::string& path, const std::string& tokenizer, int64_t length) {
            const nb::gil_scoped_release free;
            return Dataset::text(path, *load_pretrained_tokenizer(tokenizer), length);
          },
          nb::arg("path"), nb::arg("tokenizer"), nb::arg("length"))
      .def_static(
          "chunks",
          [](nb::object ids, int64_t length) {
            const Converted all = convert(ids, DType::kI32, "the ids");
            const auto* data = reinterpret_cast<const int32_t*>(all.bytes.data());
            return Dataset::chunks(std::vector<int32_t>(data, data + all.type.shape.elements()), length);
          },
          nb::arg("ids"), nb::arg("length"))
      .def_static(
          "tsv",
          [](const std::string& path, const std::string& tokenizer, int64_t text_column, int64_t label_column,
             bool header, int64_t max_length) {
            const nb::gil_scoped_release free;
            return Dataset::tsv(path, *load_pretrained_tokenizer(tokenizer), text_column, label_column, header,
                                max_length);
          },
          nb::arg("path"), nb::arg("tokenizer"), nb::arg("text_column"), nb::arg("label_column"), nb::arg("header"),
          nb::arg("max_length"))
      .def("__len__", &Dataset::size)
      .def("sample", &sample_of, nb::arg("index"))
      .def("sample_types", [](const Dataset& data) { return to_dict(data.sample_types()); })
      .def("select", &Dataset::select, nb::arg("indices"))
      .def(
          "split",
          [](const Dataset& data, double fraction, uint64_t seed) {
            const auto [first, second] = data.split(fraction, seed);
            return nb::make_tuple(first, second);
          },
          nb::arg("fraction"), nb::arg("seed"));
}

LoaderOptions options_of(int64_t batch, bool shuffle, uint64_t seed, bool drop_last, int workers, int prefetch,
                         std::vector<int64_t> buckets) {
  return {batch, shuffle, seed, drop_last, workers, prefetch, std::move(buckets)};
}

void add_loader(nb::module_& module) {
  nb::class_<PyLoader>(module, "LoaderCore")
      .def(
          "__init__",
          [](PyLoader* self, const Dataset& data, int64_t batch, bool shuffle, uint64_t seed, bool drop_last,
             int workers, int prefetch, std::vector<int64_t> buckets) {
            const LoaderOptions options =
                options_of(batch, shuffle, seed, drop_last, workers, prefetch, std::move(buckets));
            const nb::gil_scoped_release free;
            new (self) PyLoader(data, options);
          },
          nb::arg("data"), nb::arg("batch"), nb::arg("shuffle"), nb::arg("seed"), nb::arg("drop_last"),
          nb::arg("workers"), nb::arg("prefetch"), nb::arg("buckets"))
      .def("shapes",
           [](PyLoader& self) {
             std::vector<InputTypes> shapes;
             {
               const nb::gil_scoped_release free;
               shapes = self.loader().shapes();
             }
             nb::list found;
             for (const InputTypes& types : shapes) found.append(to_dict(types));
             return found;
           })
      .def("__len__", [](PyLoader& self) { return self.loader().batches(); })
      .def("next",
           [](PyLoader& self) {
             const Arrays* batch = nullptr;
             {
               const nb::gil_scoped_release free;
               batch = &self.loader().next();
             }
             return nb::make_tuple(to_dict(*batch), batch->samples);
           })
      .def("position",
           [](PyLoader& self) {
             const LoaderPosition position = self.loader().position();
             return nb::make_tuple(position.epoch, position.batch);
           })
      .def(
          "seek",
          [](PyLoader& self, int64_t epoch, int64_t batch) {
            const nb::gil_scoped_release free;
            self.loader().seek({epoch, batch});
          },
          nb::arg("epoch"), nb::arg("batch"));
}

}  // namespace

PyLoader::PyLoader(const Dataset& data, const LoaderOptions& options)
    : data_(data), options_(options), loader_(std::make_unique<Loader>(data, options)) {}

PyLoader::~PyLoader() {
  if (guard_->is_child() || !nb::is_alive()) {
    (void)loader_.release();
    return;
  }
  // Its workers may wait for the GIL.
  const nb::gil_scoped_release free;
  loader_.reset();
}

Loader& PyLoader::loader() {
  if (guard_->is_child()) {
    (void)loader_.release();
    loader_ = std::make_unique<Loader>(data_, options_);
    guard_.emplace();
  }
  return *loader_;
}

void add_data(nb::module_& module) {
  add_dataset(module);
  module.def(
      "array_type",
      [](nb::object value, const std::string& name) {
        const TensorType type = convert(value, {}, "\"" + name + "\"").type;
        return nb::make_tuple(numpy_name(type.dtype), to_tuple(type.shape));
      },
      nb::arg("value"), nb::arg("name"));
  add_loader(module);
}

}  // namespace linnet::python
