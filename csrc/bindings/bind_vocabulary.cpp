// What tokens stand for, pairs of vocabularies, and drafters that need a translator.
#include "bindings/bind_vocabulary.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "core/alignment.h"
#include "runtime/translator.h"
#include "runtime/worker.h"

namespace dsi::py {

namespace {

using Ids = nb::ndarray<const Token, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

TokenBytes table_of(const std::vector<nb::bytes> &tokens) {
  TokenBytes table;
  table.offsets.push_back(0);
  for (const nb::bytes &token : tokens) {
    table.blob.append(token.c_str(), token.size());
    table.offsets.push_back(static_cast<std::int64_t>(table.blob.size()));
  }
  return table;
}

std::vector<Token> checked_map(const Ids &map, std::size_t below, const char *name) {
  std::vector<Token> ids(map.data(), map.data() + map.size());
  for (const Token id : ids) {
    if (id < -1 || (id >= 0 && static_cast<std::size_t>(id) >= below))
      throw std::invalid_argument(std::string(name) + ": holds the id " + std::to_string(id) +
                                  ", outside -1.." + std::to_string(below - 1));
  }
  return ids;
}

std::vector<bool> flags(const std::vector<Token> &ids, std::size_t size) {
  std::vector<bool> result(size);
  for (const Token id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < size)
      result[static_cast<std::size_t>(id)] = true;
  }
  return result;
}

std::shared_ptr<VocabularyPair> make_pair(const std::vector<nb::bytes> &target,
                                          const std::vector<nb::bytes> &drafter, const Ids &t2d,
                                          const Ids &d2t, const std::vector<Token> &target_control,
                                          const std::vector<Token> &target_opens,
                                          const std::vector<Token> &opening) {
  if (t2d.size() != target.size() || d2t.size() != drafter.size())
    throw std::invalid_argument("t2d, d2t: one entry for each token, " +
                                std::to_string(target.size()) + " and " +
                                std::to_string(drafter.size()) + ", got " +
                                std::to_string(t2d.size()) + " and " + std::to_string(d2t.size()));
  auto pair = std::make_shared<VocabularyPair>();
  pair->target = table_of(target);
  pair->drafter = table_of(drafter);
  pair->t2d = checked_map(t2d, drafter.size(), "t2d");
  pair->d2t = checked_map(d2t, target.size(), "d2t");
  pair->noise_ids = pair->d2t;
  for (std::size_t id = 0; id < drafter.size(); ++id) {
    if (pair->noise_ids[id] < 0 && drafter[id].size() > 0)
      pair->noise_ids[id] = static_cast<Token>(target.size() + id);
  }
  pair->target_control = flags(target_control, target.size());
  pair->target_opens = flags(target_opens, target.size());
  for (const Token id : opening) {
    if (id < 0 || static_cast<std::size_t>(id) >= drafter.size())
      throw std::invalid_argument("opening: holds the id " + std::to_string(id) +
                                  ", outside the drafter's vocabulary");
  }
  pair->opening = opening;
  pair->sort_target();
  return pair;
}

struct TranslatedSpec {
  SharedObject server;
  Translator::Config config;
};

// An Alignment with its encoder, for tests and measurements.
struct PyAlignment {
  Alignment alignment;
  Encoder encode_drafter;
};

nb::object ids_array(std::span<const Token> ids) {
  auto array = nb::module_::import_("numpy").attr("empty")(ids.size(), "int32");
  auto view = nb::cast<nb::ndarray<nb::numpy, Token, nb::ndim<1>, nb::c_contig>>(array);
  std::copy(ids.begin(), ids.end(), view.data());
  return array;
}

} // namespace

Encoder encoder(nb::handle function) {
  return [kept = share(function)](std::string_view text) {
    const nb::gil_scoped_acquire gil;
    try {
      const nb::object result = nb::handle(kept.get())(nb::bytes(text.data(), text.size()));
      const auto ids = nb::cast<Ids>(result[0]);
      const auto ends = nb::cast<Ends>(result[1]);
      return Spelling{{ids.data(), ids.data() + ids.size()},
                      {ends.data(), ends.data() + ends.size()}};
    } catch (nb::python_error &error) {
      throw CausedError(job_error(error));
    } catch (const nb::cast_error &) {
      throw std::invalid_argument("encode: must return ids int32 [n] and ends int64 [n]");
    }
  };
}

std::unique_ptr<PythonServer> translated_server(nb::handle spec) {
  if (!nb::isinstance<TranslatedSpec>(spec))
    return nullptr;
  const auto &translated = nb::cast<const TranslatedSpec &>(spec);
  const auto width = static_cast<std::int64_t>(translated.config.pair->d2t.size());
  return std::make_unique<PythonServer>(nb::handle(translated.server.get()), width,
                                        std::make_unique<Translator>(translated.config));
}

void bind_vocabulary(nb::module_ &module) {
  nb::class_<TokenBytesTable>(module, "TokenBytes",
                              "id -> the bytes that token adds to the output.")
      .def("__init__", [](TokenBytesTable *self, const std::vector<nb::bytes> &table) {
        new (self) TokenBytesTable{std::make_shared<TokenBytes>(table_of(table))};
      });
  nb::class_<VocabularyPair>(module, "VocabularyPair",
                             "Two vocabularies and the tokens they share, in native memory.")
      .def(nb::new_(&make_pair), nb::arg("target"), nb::arg("drafter"), nb::arg("t2d"),
           nb::arg("d2t"), nb::arg("target_control") = std::vector<Token>{},
           nb::arg("target_opens") = std::vector<Token>{},
           nb::arg("opening") = std::vector<Token>{});
  nb::class_<TranslatedSpec>(module, "TranslatedDrafter",
                             "A drafter's server, and what translates between the vocabularies.")
      .def(
          "__init__",
          [](TranslatedSpec *self, const nb::object &server,
             const std::shared_ptr<VocabularyPair> &pair, const nb::object &encode_target,
             const nb::object &encode_drafter, std::int64_t context, std::size_t lead_bytes,
             bool hold_back) {
            new (self) TranslatedSpec{share(server),
                                      {pair, encoder(encode_target), encoder(encode_drafter),
                                       context, lead_bytes, hold_back}};
          },
          nb::arg("server"), nb::arg("pair"), nb::arg("encode_target"), nb::arg("encode_drafter"),
          nb::arg("context") = -1, nb::arg("lead_bytes") = 0, nb::arg("hold_back") = true);
  nb::class_<PyAlignment>(module, "Alignment", "One text in two vocabularies, for measurements.")
      .def("__init__",
           [](PyAlignment *self, const std::shared_ptr<VocabularyPair> &pair,
              const nb::object &encode_drafter) {
             new (self) PyAlignment{Alignment(pair), encoder(encode_drafter)};
           })
      .def(
          "follow",
          [](PyAlignment &self, const Ids &path, std::int64_t frozen, bool keep_ahead) {
            self.alignment.follow({path.data(), path.size()}, frozen, keep_ahead,
                                  self.encode_drafter);
          },
          nb::arg("path").noconvert(), nb::arg("frozen"), nb::arg("keep_ahead"))
      .def("push", [](PyAlignment &self, Token id) { self.alignment.push(id); })
      .def_prop_ro("ids", [](const PyAlignment &self) { return ids_array(self.alignment.ids()); })
      .def_prop_ro("ahead", [](const PyAlignment &self) {
        const std::string_view ahead = self.alignment.ahead();
        return nb::bytes(ahead.data(), ahead.size());
      });
}

} // namespace dsi::py
