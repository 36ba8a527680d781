// Threads that call, each as soon as its answer is there, and each on a connection of its own (omniORB's oneCallPerConnection).
// client REFERENCE THREADS BYTES WARM_UP_S WINDOW_S: says `begin`, and at the end how many calls the window had, how many answers were wrong,
// and the median and the 99th percentile of what calls took, in microseconds.
#include "echo.hh"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>
#include <vector>

using Clock = std::chrono::steady_clock;

static std::atomic<bool> counts{false}, over{false};

struct Found {
    std::vector<float> times_us;
    long wrong = 0;
};

static void call(Echo_ptr echo, CORBA::ULong bytes, unsigned seed, Found& found)
{
    Bytes sent;
    sent.length(bytes);
    for (unsigned turn = seed; !over; turn++) {
        for (CORBA::ULong at = 0; at < bytes; at += 61) sent[at] = (at + turn) % 251;
        bool is_counted = counts;
        Clock::time_point began = Clock::now();
        try {
            Bytes_var back = echo->back(sent);
            bool is_right = back->length() == bytes && std::equal(sent.NP_data(), sent.NP_data() + bytes, back->NP_data());
            if (!is_right) found.wrong++;
        } catch (const CORBA::Exception& exception) {
            fprintf(stderr, "%s\n", exception._name());
            found.wrong++;
        }
        if (is_counted && !over) found.times_us.push_back(std::chrono::duration<float, std::micro>(Clock::now() - began).count());
    }
}

int main(int count, char** arguments)
{
    CORBA::ORB_var orb = CORBA::ORB_init(count, arguments);
    if (count != 6) return 2;
    CORBA::Object_var object = orb->string_to_object(arguments[1]);
    Echo_var echo = Echo::_unchecked_narrow(object);
    std::vector<Found> found(atoi(arguments[2]));
    std::vector<std::thread> threads;
    for (size_t place = 0; place < found.size(); place++)
        threads.emplace_back([&, place] { call(echo, atoi(arguments[3]), place * 7919, found[place]); });
    std::this_thread::sleep_for(std::chrono::duration<double>(atof(arguments[4])));
    puts("begin");
    fflush(stdout);
    counts = true;
    std::this_thread::sleep_for(std::chrono::duration<double>(atof(arguments[5])));
    over = true;
    std::vector<float> times_us;
    long wrong = 0;
    for (auto& thread : threads) thread.join();
    for (Found& one : found) {
        times_us.insert(times_us.end(), one.times_us.begin(), one.times_us.end());
        wrong += one.wrong;
    }
    std::sort(times_us.begin(), times_us.end());
    auto at = [&](double part) { return times_us.empty() ? 0 : times_us[size_t((times_us.size() - 1) * part)]; };
    printf("end %zu %ld %.1f %.1f\n", times_us.size(), wrong, at(0.5), at(0.99));
    fflush(stdout);
    _exit(0);
}
