#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/float_bits.h"
#include "core/text_encoding.h"
#include "store/snapshot/half_floats.h"
#include "store/snapshot/snapshot_file.h"
#include "store/snapshot/write_snapshot.h"
#include "tests/support/temporary_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/model_fixture.h"

namespace sluice::store {
namespace {

using sluice::test::TemporaryFile;
using sluice::test::TemporaryFolder;
using test::small_model;

// ---- 16-bit floats ----

TEST(HalfFloats, RoundToTheNearestEven) {
  const struct {
    float value;
    uint16_t f16, bf16;
  } cases[] = {
      {0, 0, 0},
      {-0.0F, 0x8000, 0x8000},
      {1, 0x3c00, 0x3f80},
      {-2, 0xc000, 0xc000},
      {1 + 0x1p-11F, 0x3c00, 0x3f80},      // f16: a tie to even, down
      {1 + 3 * 0x1p-11F, 0x3c02, 0x3f80},  // f16: a tie to even, up
      {1 + 0x1p-8F, 0x3c04, 0x3f80},       // bf16: a tie, down
      {1 + 3 * 0x1p-8F, 0x3c0c, 0x3f82},   // bf16: a tie, up
      {65504, 0x7bff, 0x4780},             // largest f16
      {65519.996F, 0x7bff, 0x4780},
      {65520, 0x7c00, 0x4780},                // a tie to infinity
      {0x1p-14F, 0x0400, 0x3880},             // smallest normal f16
      {0x1p-14F - 0x1p-25F, 0x0400, 0x3880},  // a tie between subnormal and normal
      {0x1p-24F, 0x0001, 0x3380},             // smallest subnormal f16
      {0x1p-25F, 0x0000, 0x3300},             // a tie with 0
      {0x1.000002p-25F, 0x0001, 0x3300},
      {-0x1.8p-24F, 0x8002, 0xb3c0},
      {std::numeric_limits<float>::infinity(), 0x7c00, 0x7f80},
      {std::numeric_limits<float>::max(), 0x7c00, 0x7f80},
      {-std::numeric_limits<float>::quiet_NaN(), 0x7e00, 0x7fc0},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(to_f16(c.value), c.f16) << c.value;
    EXPECT_EQ(to_bf16(c.value), c.bf16) << c.value;
  }
}

TEST(HalfFloats, ReadBackEachPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    const bool nan16 = (bits & 0x7fff) > 0x7c00, nan_b = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(to_f16(from_f16(word)), nan16 ? 0x7e00 : word);
    ASSERT_EQ(to_bf16(from_bf16(word)), nan_b ? 0x7fc0 : word);
    ASSERT_EQ(std::isnan(from_f16(word)), nan16);
  }
  EXPECT_EQ(from_f16(0x3555), 0.333251953125F);
  EXPECT_EQ(from_f16(0x03ff), 0x3ffp-24F);
}

// ---- Writing and reading ----

// All shards of a version; the padding is 0.
struct Shards {
  std::vector<std::array<std::vector<float>, kMaxArrays>> values;
  explicit Shards(const ModelLayout& layout) : values(layout.shards()) {
    for (auto& shard : values) {
      for (auto& array : shard) array.resize(layout.shard_elements());
    }
  }
  [[nodiscard]] std::vector<ConstShardArrays> arrays() const {
    std::vector<ConstShardArrays> out;
    for (const auto& shard : values) out.push_back({shard[0].data(), shard[1].data(), shard[2].data()});
    return out;
  }
};

// 0, 1, 2, ... over all elements; array a begins at 1000 a. Exact in f16, and in bf16 up to 256.
Shards counted(const ModelLayout& layout) {
  Shards shards(layout);
  for (size_t a = 0; a < kMaxArrays; ++a) {
    float next = 1000 * static_cast<float>(a);
    for (uint32_t s = 0; s < layout.shards(); ++s) {
      for (uint64_t i = 0; i < layout.used_elements(s); ++i) shards.values[s][a][i] = next++;
    }
  }
  return shards;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const ModelSpec& spec, const ModelLayout& layout, const Shards& shards,
           SnapshotContent content) {
  const auto written =
      write_snapshot(path, spec, layout, {.version = 12, .steps = 34}, shards.arrays(), content);
  ASSERT_TRUE(written.has_value()) << written.error().text;
}

TEST(Snapshot, ReadsWhatItWrites) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  const ModelSpec spec = small_model();
  const ModelLayout layout(spec, 3);
  Shards shards = counted(layout);
  shards.values[1][1][5] = 1 / 3.0F;  // no 16-bit value
  for (const SnapshotContent content : {SnapshotContent::kWeights, SnapshotContent::kResumable}) {
    write(path, spec, layout, shards, content);
    const auto file = SnapshotFile::open(path, spec, SnapshotSource::kThisModel);
    ASSERT_TRUE(file.has_value()) << file.error().text;
    EXPECT_EQ(file->facts().version, 12u);
    EXPECT_EQ(file->facts().steps, 34u);
    EXPECT_EQ(file->resumable(), content == SnapshotContent::kResumable);
    ASSERT_EQ(file->arrays(), content == SnapshotContent::kResumable ? 2u : 1u);
    // Also into another number of shards.
    for (const uint32_t count : {3, 1, 5}) {
      const ModelLayout other(spec, count);
      const Shards expected = count == 3 ? shards : counted(other);
      for (uint32_t s = 0; s < count; ++s) {
        for (size_t a = 0; a < (count == 3 ? file->arrays() : 1); ++a) {
          std::vector<float> got(other.shard_elements(), 777);
          ASSERT_TRUE(file->read(other, s, a, got).has_value());
          EXPECT_EQ(got, expected.values[s][a]) << count << " shards, shard " << s << " array " << a;
        }
      }
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST(Snapshot, KeepsTheOldFileOnAnError) {
  const TemporaryFolder folder;
  const ModelSpec spec = small_model();
  const ModelLayout layout(spec, 1);
  const std::string path = folder.path() + "/m.safetensors";
  std::filesystem::create_directory(path + ".new");
  std::ofstream(path) << "old";
  const auto written =
      write_snapshot(path, spec, layout, {}, counted(layout).arrays(), SnapshotContent::kWeights);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().text,
            "cannot write " + path + ": " + path + ".new exists and is not a regular file");
  EXPECT_EQ(contents(path), "old");
}

// ---- A file of the PyPI package ----

std::string bytes_of(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}

// safetensors 0.8.0:
//   save({"w": torch.tensor([[1., -2.], [3., 0.5]]).bfloat16(), "b": torch.tensor([0.25, 7.])})
constexpr const char* kForeignFile =
    "70000000000000007b2262223a7b226474797065223a22463332222c227368617065223a5b325d2c22646174615f6f66"
    "6673657473223a5b302c385d7d2c2277223a7b226474797065223a2242463136222c227368617065223a5b322c325d2c"
    "22646174615f6f666673657473223a5b382c31365d7d7d200000803e0000e040803f00c04040003f";

TEST(Snapshot, ReadsAFileOfAnotherProgram) {
  ModelSpec spec = small_model();
  spec.tensors = {{"b", wire::DType::kF32, {2}}, {"w", wire::DType::kBf16, {2, 2}}};
  const ModelLayout layout(spec, 1);
  const TemporaryFile foreign(bytes_of(kForeignFile));
  const auto refused = SnapshotFile::open(foreign.path(), spec, SnapshotSource::kThisModel);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().text,
            foreign.path() + ": the metadata has no sluice.model; expected a snapshot of model \"digits\"");
  const auto file = SnapshotFile::open(foreign.path(), spec, SnapshotSource::kAnyModel);
  ASSERT_TRUE(file.has_value()) << file.error().text;
  EXPECT_FALSE(file->resumable());
  std::vector<float> got(64);
  ASSERT_TRUE(file->read(layout, 0, 0, got).has_value());
  got.resize(6);
  EXPECT_EQ(got, (std::vector<float>{0.25F, 7, 1, -2, 3, 0.5F}));
}

TEST(Snapshot, TakesParametersOfAnotherModelWithTheSameTensors) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  const ModelSpec spec = small_model();
  const ModelLayout layout(spec, 1);
  write(path, spec, layout, counted(layout), SnapshotContent::kResumable);
  ModelSpec other = spec;
  other.name = "copy";
  other.rule = {.kind = RuleKind::kAdd};
  const auto refused = SnapshotFile::open(path, other, SnapshotSource::kThisModel);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kMismatch);
  EXPECT_EQ(refused.error().text, path + ": the file is a snapshot of model \"digits\" with fingerprint " +
                                      hex_text(fingerprint(spec)) +
                                      "; expected model \"copy\" with fingerprint " +
                                      hex_text(fingerprint(other)));
  const auto file = SnapshotFile::open(path, other, SnapshotSource::kAnyModel);
  ASSERT_TRUE(file.has_value()) << file.error().text;
  EXPECT_EQ(file->facts().version, 0u);
  std::vector<float> got(layout.shard_elements());
  ASSERT_TRUE(file->read(layout, 0, 0, got).has_value());
  EXPECT_EQ(got, counted(layout).values[0][0]);
}

// ---- Bad input ----

std::string with_length(const std::string& json, const std::string& data) {
  std::array<std::byte, 8> length;
  store_le(length.data(), static_cast<uint64_t>(json.size()));
  return std::string(reinterpret_cast<const char*>(length.data()), 8) + json + data;
}

TEST(Snapshot, RejectsBadFiles) {
  ModelSpec spec = small_model();
  spec.tensors = {{"a", wire::DType::kF32, {2}}, {"b", wire::DType::kBf16, {3}}};
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string b = R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]})";
  const std::string data(14, '\1');
  const auto json = [&](const std::string& first, const std::string& second) {
    return with_length('{' + first + ',' + second + '}', data);
  };
  const struct {
    std::string file;
    std::string error;
  } cases[] = {
      {"", "the file has 0 bytes; a safetensors file has at least 8"},
      {"1234567", "the file has 7 bytes; a safetensors file has at least 8"},
      {"\xff\xff\xff\xff\xff\xff\xff\xff{}",
       "the header has 18446744073709551615 bytes by its length; expected at most 2 in a file of 10 bytes"},
      {with_length("", ""), "the header does not begin with {"},
      {with_length(" {}", ""), "the header does not begin with {"},
      {with_length("{\"a\":", ""), "the header is not a JSON object"},
      {with_length("{}", data), "the tensors have 0 bytes, and the file 14 bytes of data"},
      {with_length("{}", ""), R"(tensor "a" is in model "digits", and not in the file)"},
      {with_length('{' + a + '}', data.substr(0, 8)),
       R"(tensor "b" is in model "digits", and not in the file)"},
      {with_length('{' + a + ',' + b + '}', data + '\1'),
       "the tensors have 14 bytes, and the file 15 bytes of data"},
      {with_length('{' + a + ',' + b + '}', data.substr(1)),
       R"(tensor "b" has the bytes 8 to 14 of 13 bytes of data)"},
      {json(a, a + ',' + b), R"(tensor "a" is in the header twice)"},
      {json(a, "\"b\":3"), R"(tensor "b" is no object; expected dtype, shape and data_offsets)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[3]})"), R"(tensor "b" has no data_offsets)"},
      {json(a, R"("b":{"dtype":7,"shape":[3],"data_offsets":[8,14]})"), R"(tensor "b": dtype is no text)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[-3],"data_offsets":[8,14]})"),
       R"(tensor "b": shape is no list of non-negative integers)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8]})"),
       R"(tensor "b": data_offsets is no list of two non-negative integers)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[14,8]})"),
       R"(tensor "b" has the bytes 14 to 8 of 14 bytes of data)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[6,12]})"),
       R"(tensor "b" begins at byte 6, and "a" ends at byte 8)"},  // overlap
      {with_length('{' + a + R"(,"b":{"dtype":"BF16","shape":[3],"data_offsets":[9,15]}})", data + '\1'),
       R"(tensor "b" begins at byte 9, and "a" ends at byte 8)"},  // gap
      {with_length(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[2,10]}})", data.substr(0, 10)),
       R"(tensor "a" begins at byte 2, and the data begins at byte 0)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[8,14]})"),
       R"(tensor "b" has 6 bytes; BF16 [4] has 8)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[8,14]})"),
       R"(tensor "b" has 6 bytes; BF16 [4294967296, 4294967296] has more than 2^64)"},
      {json(a, R"("b":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]})"),
       R"(tensor "b" has the shape [1, 3] in the file, and [3] in model "digits")"},
      {json(a, R"("b":{"dtype":"I16","shape":[3],"data_offsets":[8,14]})"),
       R"(tensor "b" has the dtype "I16" in the file, and "BF16" in model "digits")"},
      {json(a, R"("c":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]})"),
       R"(tensor "c" is in the file, and not in model "digits")"},
      {json(a, b + R"(,"__metadata__":[])"), "__metadata__ is no object"},
      {json(a, b + R"(,"__metadata__":{"x":1})"), "__metadata__.x is no text"},
      {json(a, b + R"(,"__metadata__":{"sluice.crc32c":"00000001"})"), "the checksum of the data is "},
  };
  const TemporaryFile good(json(a, b));
  ASSERT_TRUE(SnapshotFile::open(good.path(), spec, SnapshotSource::kAnyModel).has_value());
  for (const auto& c : cases) {
    const TemporaryFile file(c.file);
    const auto opened = SnapshotFile::open(file.path(), spec, SnapshotSource::kAnyModel);
    ASSERT_FALSE(opened.has_value()) << c.error;
    EXPECT_TRUE(opened.error().text.starts_with(file.path() + ": " + c.error))
        << opened.error().text << "\nexpected " << c.error;
  }
}

TEST(Snapshot, RejectsDamageOfItsOwnFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  const ModelSpec spec = small_model();
  const ModelLayout layout(spec, 2);
  write(path, spec, layout, counted(layout), SnapshotContent::kResumable);
  const std::string good = contents(path);
  const auto error_of = [&](const std::string& text) {
    const TemporaryFile file(text);
    const auto opened = SnapshotFile::open(file.path(), spec, SnapshotSource::kThisModel);
    return opened ? "" : opened.error().text.substr(file.path().size() + 2);
  };
  ASSERT_EQ(error_of(good), "");
  // One bit of each byte: an error, or a change of JSON text that means the same.
  const size_t data_at = 8 + load_le<uint64_t>(reinterpret_cast<const std::byte*>(good.data()));
  for (size_t i = data_at; i < good.size(); i += 13) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 8);
    EXPECT_TRUE(error_of(bad).starts_with("the checksum of the data is ")) << i;
  }
  for (size_t i = 0; i < data_at; i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    static_cast<void>(error_of(bad));  // no crash
  }
  const struct {
    std::string from, to, error;
  } cases[] = {
      {R"("sluice.version":"12")", R"("sluice.version":"1x")",
       R"(sluice.version is "1x"; expected a non-negative integer)"},
      {R"("sluice.steps":"34")", R"("sluice.steps":"-4")",
       R"(sluice.steps is "-4"; expected a non-negative integer)"},
      {R"("resumable")", R"("resumeable")",
       R"(sluice.content is "resumeable"; expected "weights" or "resumable")"},
      {R"("resumable")", R"("weights")", R"(tensor "sluice.momentum:)"},
      {"sluice.crc32c", "sluice.crc33c", "the metadata has no sluice.crc32c"},
      {R"(:"digits")", R"(:"digitt")", R"(the file is a snapshot of model "digitt" with fingerprint )"},
  };
  for (const auto& c : cases) {
    std::string json = good.substr(8, data_at - 8);
    const size_t at = json.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    json.replace(at, c.from.size(), c.to);
    EXPECT_TRUE(error_of(with_length(json, good.substr(data_at))).starts_with(c.error))
        << error_of(with_length(json, good.substr(data_at)));
  }
}

TEST(Snapshot, ReportsWhyAFileCannotBeOpened) {
  const auto missing = SnapshotFile::open("/nonexistent/m", small_model(), SnapshotSource::kAnyModel);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().text, "cannot open /nonexistent/m: No such file or directory");
  const auto folder = SnapshotFile::open("/", small_model(), SnapshotSource::kAnyModel);
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().text, "/: not a regular file");
}

}  // namespace
}  // namespace sluice::store
