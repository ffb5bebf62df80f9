// How a function is called, in the letters of layouts.tsv: what a wrong parameter type would change without
// moving any offset.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace sluice::nccl_layouts {

template <typename T>
constexpr char shape_letter() noexcept {
  if constexpr (std::is_pointer_v<T>) {
    return 'p';
  } else {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>,
                  "NCCL's plugin calls pass integers and pointers only");
    return static_cast<char>('0' + sizeof(T));
  }
}

// What is no pointer to a function has the shape "-".
template <typename T>
struct CallShape {
  static constexpr bool is(std::string_view text) noexcept { return text == "-"; }
};

template <typename R, typename... A>
struct CallShape<R (*)(A...)> {
  static constexpr bool is(std::string_view text) noexcept {
    const char letters[] = {shape_letter<R>(), ':', shape_letter<A>()...};
    return text == std::string_view(letters, sizeof(letters));
  }
};

template <typename R, typename... A>
struct CallShape<R (*)(A...) noexcept> : CallShape<R (*)(A...)> {};

}  // namespace sluice::nccl_layouts
