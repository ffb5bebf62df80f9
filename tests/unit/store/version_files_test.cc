#include "store/versions/version_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "core/crc32c.h"
#include "store/model/model_spec.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/version_fixture.h"

namespace sluice::store {
namespace {

using sluice::test::TemporaryFolder;
using test::expect_content;
using test::fill;
using test::pushes_of;
using test::slot_path;
using test::small_shape;
using OnDamage = VersionFiles::OnDamage;

VersionFiles open_files(const TemporaryFolder& folder, const ShardShape& shape = small_shape()) {
  auto files = VersionFiles::open(folder.path(), shape, OnDamage::kRefuse);
  if (!files) throw std::runtime_error(files.error().text);
  return std::move(*files);
}

std::string open_error(const TemporaryFolder& folder, const ShardShape& shape = small_shape()) {
  const auto files = VersionFiles::open(folder.path(), shape, OnDamage::kRefuse);
  return files ? "" : files.error().text;
}

void prepare(VersionFiles& files, uint64_t version, uint64_t generation = 1) {
  VersionWriter writer;
  ASSERT_TRUE(files.begin(version, generation, writer).ok());
  fill(writer, version, generation);
  ASSERT_TRUE(files.prepare(writer, version + 7, pushes_of(version, generation)).ok());
  EXPECT_FALSE(writer.valid());
}

void commit(VersionFiles& files, uint64_t version) {
  prepare(files, version);
  ASSERT_TRUE(files.commit(version).ok());
}

TEST(VersionFiles, KeepsTheLastVersions) {
  const TemporaryFolder folder;
  VersionFiles files = open_files(folder);
  EXPECT_EQ(files.committed(), std::nullopt);
  for (uint64_t v = 0; v < 10; ++v) {
    prepare(files, v);
    EXPECT_EQ(files.prepared(), v);
    EXPECT_EQ(files.committed(), v == 0 ? std::nullopt : std::optional(v - 1));
    expect_content(files.view(v), v, 1);
    ASSERT_TRUE(files.commit(v).ok());
    EXPECT_EQ(files.prepared(), std::nullopt);
    EXPECT_EQ(files.committed(), v);
    expect_content(files.view(v), v, 1);
    if (v >= 1) expect_content(files.view(v - 1), v - 1, 1);
    EXPECT_FALSE(v >= 2 && files.view(v - 2).valid());
  }
}

TEST(VersionFiles, RefusesCallsOutOfOrder) {
  const TemporaryFolder folder;
  VersionFiles files = open_files(folder);
  commit(files, 5);
  VersionWriter writer, other;
  EXPECT_EQ(files.begin(5, 1, writer).code(), Errc::kInvalidArgument) << "not newer";
  EXPECT_EQ(files.prepare(writer, 1, {}).code(), Errc::kInvalidArgument) << "no writer";
  ASSERT_TRUE(files.begin(9, 1, writer).ok()) << "a new copy may skip versions";
  EXPECT_EQ(files.begin(9, 1, other).code(), Errc::kInvalidArgument) << "one in work";
  EXPECT_EQ(files.commit(9).code(), Errc::kInvalidArgument) << "not prepared";
  EXPECT_EQ(files.prepare(writer, 1, std::vector<PushIdentity>(5)).code(), Errc::kTooMany);
  ASSERT_TRUE(files.prepare(writer, 1, std::vector<PushIdentity>(4)).ok());
  EXPECT_EQ(files.begin(10, 1, other).code(), Errc::kInvalidArgument) << "one prepared";
  EXPECT_EQ(files.commit(8).code(), Errc::kInvalidArgument);
  EXPECT_EQ(files.discard(5).code(), Errc::kInvalidArgument) << "committed";
  ASSERT_TRUE(files.discard(9).ok());
  EXPECT_FALSE(files.view(9).valid());
  prepare(files, 6, 2);
  expect_content(files.view(6), 6, 2);
}

TEST(VersionFiles, DiscardsAWriterThatEnds) {
  const TemporaryFolder folder;
  VersionFiles files = open_files(folder);
  {
    VersionWriter writer;
    ASSERT_TRUE(files.begin(1, 1, writer).ok());
    fill(writer, 1, 1);
  }
  EXPECT_FALSE(files.view(1).valid());
  commit(files, 1);
}

TEST(VersionFiles, DoesNotReuseASlotThatIsRead) {
  const TemporaryFolder folder;
  VersionFiles files = open_files(folder);
  commit(files, 1);
  VersionView first = files.view(1), second = files.view(1);
  commit(files, 2);
  commit(files, 3);
  EXPECT_FALSE(files.view(1).valid()) << "no longer kept";
  VersionWriter writer;
  EXPECT_EQ(files.begin(4, 1, writer).code(), Errc::kWouldBlock);
  expect_content(first, 1, 1);
  first = VersionView();
  EXPECT_EQ(files.begin(4, 1, writer).code(), Errc::kWouldBlock);
  expect_content(second, 1, 1);
  second = VersionView();
  commit(files, 4);
}

TEST(VersionFiles, LetsAViewEndOnAnotherThreadAndAfterTheFiles) {
  const TemporaryFolder folder;
  auto files = std::make_unique<VersionFiles>(open_files(folder));
  for (uint64_t v = 1; v < 200; ++v) {
    commit(*files, v);
    std::thread([v, view = files->view(v)]() mutable {
      expect_content(view, v, 1);
      view = VersionView();
    }).join();
  }
  const VersionView last = files->view(199);
  files.reset();
  ASSERT_TRUE(VersionFiles::remove(folder.path(), small_shape()).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  expect_content(last, 199, 1);
}

TEST(VersionFiles, ReopensWhatWasThere) {
  const TemporaryFolder folder;
  {
    VersionFiles files = open_files(folder);
    for (uint64_t v = 1; v < 5; ++v) commit(files, v);
    prepare(files, 5, 4);
  }
  {
    VersionFiles files = open_files(folder);
    EXPECT_EQ(files.committed(), 4u);
    EXPECT_EQ(files.prepared(), 5u);
    expect_content(files.view(3), 3, 1);
    expect_content(files.view(4), 4, 1);
    expect_content(files.view(5), 5, 4);
    EXPECT_FALSE(files.view(2).valid());
    ASSERT_TRUE(files.discard(5).ok());
  }
  VersionFiles files = open_files(folder);
  EXPECT_EQ(files.prepared(), std::nullopt);
  prepare(files, 5, 6);
  expect_content(files.view(5), 5, 6);
}

TEST(VersionFiles, RefusesFilesThatAreInUse) {
  const TemporaryFolder folder;
  const VersionFiles files = open_files(folder);
  EXPECT_EQ(open_error(folder),
            slot_path(folder.path(), 0) +
                " is in use by another process or a view; end it, or choose another folder");
}

// The lock is that of the whole shard, and views of every slot keep it.
TEST(VersionFiles, AreInUseWhileAViewIs) {
  const TemporaryFolder folder;
  auto files = std::make_unique<VersionFiles>(open_files(folder));
  commit(*files, 1);
  commit(*files, 2);
  VersionView last = files->view(2);
  files.reset();
  EXPECT_NE(open_error(folder), "");
  last = VersionView();
  EXPECT_EQ(open_error(folder), "");
}

TEST(VersionFiles, TakeOneDescriptor) {
  const TemporaryFolder folder;
  const auto descriptors = [] {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return std::distance(begin(open), end(open));
  };
  ShardShape shape = small_shape();
  shape.kept = kMaxVersions;
  const auto before = descriptors();
  for (const char* const what : {"created", "opened"}) {
    VersionFiles files = open_files(folder, shape);
    commit(files, *what == 'c' ? 1 : 2);
    EXPECT_EQ(descriptors(), before + 1) << what;
  }
  EXPECT_EQ(descriptors(), before);
}

// ---- Damage ----

void write_at(const std::string& path, size_t position, const void* bytes, size_t size) {
  const int fd = ::open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::pwrite(fd, bytes, size, static_cast<off_t>(position)), static_cast<ssize_t>(size));
  ::close(fd);
}

// Inverts one bit.
void flip(const std::string& path, size_t position) {
  const int fd = ::open(path.c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  unsigned char byte = 0;
  ASSERT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(position)), 1);
  ::close(fd);
  byte ^= 4;
  write_at(path, position, &byte, 1);
}

TEST(VersionFiles, FindsDamageAnywhere) {
  const struct {
    size_t position;
    const char* what;
  } cases[] = {
      {4096, "the checksum of array 0 of version 2 is "},
      {4096 + 255, "the checksum of array 0 of version 2 is "},
      {4096 + 256, "the checksum of array 1 of version 2 is "},
      {4096 + 511, "the checksum of array 1 of version 2 is "},
      {8, "the state is "},
      {15, "the state is "},
      {24, "the checksum of the header is "},   // elements
      {40, "the checksum of the header is "},   // fingerprint
      {72, "the checksum of the header is "},   // version
      {80, "the checksum of the header is "},   // generation
      {88, "the checksum of the header is "},   // steps
      {96, "the checksum of the header is "},   // push count, now 6
      {100, "the checksum of the header is "},  // checksum of an array
      {112, "the checksum of the header is "},
      {128, "the checksum of the header is "},  // a push
      {159, "the checksum of the header is "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.position);
    const TemporaryFolder folder;
    {
      VersionFiles files = open_files(folder);
      commit(files, 1);
      commit(files, 2);
    }
    flip(slot_path(folder.path(), 1), c.position);
    EXPECT_TRUE(open_error(folder).starts_with(slot_path(folder.path(), 1) + ": " + c.what))
        << open_error(folder);
    auto files = VersionFiles::open(folder.path(), small_shape(), OnDamage::kDrop);
    ASSERT_TRUE(files.has_value()) << files.error().text;
    EXPECT_EQ(files->committed(), 1u);
    expect_content(files->view(1), 1, 1);
    commit(*files, 2);
    commit(*files, 3);
  }
}

TEST(VersionFiles, RefusesFilesOfOthers) {
  const TemporaryFolder folder;
  {
    VersionFiles files = open_files(folder);
    commit(files, 1);
  }
  const std::string path = slot_path(folder.path(), 0);
  ShardShape shape = small_shape();
  shape.elements = 128;
  EXPECT_EQ(open_error(folder, shape), path + " has 4608 bytes; expected 5120");
  shape = small_shape();
  shape.arrays = 1;
  shape.elements = 128;
  EXPECT_EQ(open_error(folder, shape), path + ": the number of elements is 64; expected 128");

  // A file that was renamed to another model or shard.
  shape = small_shape();
  shape.shard = 4;
  std::string other = path;
  other.replace(other.find("-3."), 3, "-4.");
  std::filesystem::copy(path, other);
  EXPECT_EQ(open_error(folder, shape), other + ": the shard is 3; expected 4");
  shape = small_shape();
  shape.fingerprint[0] = 0xff;
  other = path;
  other.replace(folder.path().size() + 1, 2, "ff");
  std::filesystem::copy(path, other);
  EXPECT_TRUE(open_error(folder, shape).starts_with(other + ": the model's fingerprint is 0102")) << other;

  write_at(path, 0, "PNG", 3);
  EXPECT_EQ(open_error(folder),
            path + ": the first 8 bytes are not \"SLUICEV1\", so it is no file of a version");
  EXPECT_FALSE(VersionFiles::open(folder.path(), small_shape(), OnDamage::kDrop).has_value());
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_NE(open_error(folder), "");
}

TEST(VersionFiles, RefusesAFolderThatDoesNotExist) {
  const auto files = VersionFiles::open("/nonexistent", small_shape(), OnDamage::kRefuse);
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().text,
            "cannot create " + slot_path("/nonexistent", 0) + ".new: No such file or directory");
}

// A limit of the file size stands for a full disk.
TEST(VersionFiles, ReportsAFullDiskWhenItOpens) {
  const TemporaryFolder folder;
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit low{.rlim_cur = 4500, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto files = VersionFiles::open(folder.path(), small_shape(), OnDamage::kRefuse);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().code, Errc::kMemoryLimit);
  EXPECT_EQ(files.error().text,
            "cannot reserve 4608 bytes for " + slot_path(folder.path(), 0) + ": File too large");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(VersionFiles, ReservesAllBlocks) {
  const TemporaryFolder folder;
  ShardShape shape = small_shape();
  shape.elements = 1 << 18;
  const VersionFiles files = open_files(folder, shape);
  for (size_t slot = 0; slot < 3; ++slot) {
    struct stat info {};
    ASSERT_EQ(::stat(slot_path(folder.path(), slot).c_str(), &info), 0);
    EXPECT_EQ(static_cast<size_t>(info.st_size), shape.file_bytes());
    EXPECT_GE(static_cast<size_t>(info.st_blocks) * 512, shape.file_bytes());
  }
}

}  // namespace
}  // namespace sluice::store
