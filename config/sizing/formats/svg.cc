#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/sizing/formats/formats.h"
#include "config/sizing/model.h"
#include "core/assert.h"

namespace sluice::config {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 360;
constexpr double kLeft = 60, kRight = 20, kTop = 40, kBottom = 90;
constexpr int kTicks = 8;

// Converts values to positions in the plot.
class Axes {
 public:
  Axes(double most_x, double most_y) : most_x_(most_x), most_y_(most_y) {}
  [[nodiscard]] double x(double value) const { return kLeft + value / most_x_ * (kWidth - kLeft - kRight); }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - value / most_y_ * (kHeight - kTop - kBottom);
  }

 private:
  double most_x_;
  double most_y_;
};

void add_text(std::string& out, double x, double y, std::string_view anchor, const std::string& text) {
  out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, text) + "\n";
}

void add_line(std::string& out, double x1, double y1, double x2, double y2, std::string_view style) {
  out += fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)", x1, y1, x2, y2, style) +
         "\n";
}

void add_grid(std::string& out, const Axes& axes, uint64_t most_reducers, double most_time) {
  constexpr std::string_view kGrid = R"(stroke="#dddddd")";
  const uint64_t ticks = std::min<uint64_t>(most_reducers, kTicks);
  for (uint64_t i = 0; i <= ticks; ++i) {
    const uint64_t reducers = most_reducers * i / ticks;
    const double x = axes.x(static_cast<double>(reducers));
    add_line(out, x, axes.y(0), x, kTop, kGrid);
    add_text(out, x, axes.y(0) + 15, "middle", fmt::format("{}", reducers));
  }
  for (int i = 0; i <= 4; ++i) {
    const double time = most_time * i / 4;
    add_line(out, kLeft, axes.y(time), kWidth - kRight, axes.y(time), kGrid);
    add_text(out, kLeft - 6, axes.y(time) + 4, "end", fmt::format("{:.2f}", time));
  }
  add_text(out, (kLeft + kWidth - kRight) / 2, axes.y(0) + 32, "middle", "reducers");
}

template <typename Time>
void add_curve(std::string& out, const Axes& axes, const std::vector<PoolStep>& steps, std::string_view color,
               const Time& time) {
  std::string points;
  for (const PoolStep& s : steps) {
    if (time(s) > 0)
      points += fmt::format("{:.1f},{:.1f} ", axes.x(static_cast<double>(s.reducers)), axes.y(time(s)));
  }
  out +=
      fmt::format(
          R"svg(<polyline points="{}" fill="none" stroke="{}" stroke-width="2" clip-path="url(#area)"/>)svg",
          points, color) +
      "\n";
}

void add_key(std::string& out, double x, std::string_view style, const std::string& label) {
  add_line(out, x, kHeight - 18, x + 26, kHeight - 18, style);
  add_text(out, x + 32, kHeight - 14, "start", label);
}

}  // namespace

std::string plan_as_svg(const Plan& plan) {
  const std::vector<PoolStep>& steps = plan.pool_sizes.steps;
  SLUICE_ASSERT(!steps.empty());
  constexpr std::string_view kRingStyle = R"(stroke="#333333" stroke-dasharray="6 4")";
  constexpr std::string_view kPayingStyle = R"(stroke="#448361" stroke-dasharray="2 3")";
  const double ring = ring_traffic(plan.request.workers) / plan.request.slow_worker;
  const double most_time = 0.5 * std::ceil(3 * ring);
  const uint64_t most_reducers = steps.back().reducers;
  const Axes axes(static_cast<double>(most_reducers), most_time);

  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" font-family="sans-serif" font-size="11">)"
      "\n"
      R"(<rect width="{0}" height="{1}" fill="white"/>)"
      "\n",
      kWidth, kHeight);
  // A narrow pool alone takes many times as long as a ring.
  out += fmt::format(R"(<clipPath id="area"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>)", kLeft,
                     kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom) +
         "\n";
  add_text(out, kWidth / 2, 18, "middle",
           fmt::format("Time of an allreduce over S/B, {} workers of {:g} Gbps, reducers of {:g} Gbps",
                       plan.request.workers, plan.worker.gbps, plan.usable_gbps));
  add_grid(out, axes, most_reducers, most_time);
  add_line(out, kLeft, axes.y(ring), kWidth - kRight, axes.y(ring), kRingStyle);
  if (plan.pool_sizes.paying) {
    const double x = axes.x(static_cast<double>(*plan.pool_sizes.paying));
    add_line(out, x, axes.y(0), x, kTop, kPayingStyle);
  }
  add_curve(out, axes, steps, "#d9730d", [](const PoolStep& s) { return s.pool_alone; });
  add_curve(out, axes, steps, "#0b6e99", [](const PoolStep& s) { return s.time; });
  add_key(out, kLeft, R"(stroke="#0b6e99" stroke-width="2")", "with co-located reducers");
  add_key(out, kLeft + 195, R"(stroke="#d9730d" stroke-width="2")", "pool alone");
  add_key(out, kLeft + 310, kRingStyle, "ring");
  if (plan.pool_sizes.paying)
    add_key(out, kLeft + 390, kPayingStyle,
            fmt::format("pays up to {} (at {:.0f} %)", *plan.pool_sizes.paying, 100 * plan.request.exposed));
  return out + "</svg>\n";
}

}  // namespace sluice::config
