/* A FastCGI responder for tests: accepts on its standard input, one connection and one request at a time. What it does is said by the
   request's query: `complain` (on standard error), `crash`, `hang`, `garbage`, `refuse`, `endless`, `close` (after this reply), `bytes=N`, or else it tells what it was told. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char parameters[65536];
static size_t parameters_length, input_length;

static int take(int from, void *to, size_t count) {
    for (char *at = to; count > 0;) {
        ssize_t got = read(from, at, count);
        if (got <= 0) return 0;
        at += got, count -= (size_t)got;
    }
    return 1;
}

static void put(int to, const void *bytes, size_t count) {
    for (const char *at = bytes; count > 0;) {
        ssize_t sent = write(to, at, count);
        if (sent <= 0) return;
        at += sent, count -= (size_t)sent;
    }
}

static void record(int to, int kind, const void *content, size_t length, int padding) {
    unsigned char header[8] = {1, (unsigned char)kind, 0, 1, (unsigned char)(length >> 8), (unsigned char)length, (unsigned char)padding, 0};
    char zeros[255] = {0};
    put(to, header, 8);
    put(to, content, length);
    put(to, zeros, (size_t)padding);
}

static void end(int to, int status) {
    char body[8] = {0, 0, 0, 0, (char)status, 0, 0, 0};
    record(to, 3, body, 8, 0);
}

static void say(int to, const char *text) { record(to, 6, text, strlen(text), (int)(strlen(text) % 8)); }

/* The parameters as lines `NAME=value`. */
static char *lines(void) {
    static char text[131072];
    size_t at = 0, length = 0;
    while (at < parameters_length) {
        size_t lengths[2];
        for (int i = 0; i < 2; i++) {
            unsigned char first = (unsigned char)parameters[at++];
            lengths[i] = first;
            if (first & 0x80) {
                lengths[i] = (size_t)(first & 0x7f) << 24 | (size_t)(unsigned char)parameters[at] << 16 |
                             (size_t)(unsigned char)parameters[at + 1] << 8 | (unsigned char)parameters[at + 2];
                at += 3;
            }
        }
        length += (size_t)sprintf(text + length, "%.*s=%.*s\n", (int)lengths[0], parameters + at, (int)lengths[1], parameters + at + lengths[0]);
        at += lengths[0] + lengths[1];
    }
    text[length] = 0;
    return text;
}

static int has(const char *told, const char *query) {
    char line[64];
    sprintf(line, "QUERY_STRING=%s", query);
    return strstr(told, line) != NULL;
}

/* Answers one request; whether the connection may go on. */
static int answer(int to) {
    char *told = lines(), text[256];
    if (has(told, "complain")) put(2, "a complaint\n", 12);
    if (has(told, "crash")) _exit(3);
    if (has(told, "garbage")) return put(to, "this is no record", 17), 0;
    if (has(told, "refuse")) return end(to, 2), 1;
    while (has(told, "endless")) {}
    while (has(told, "hang")) pause();
    say(to, "Content-Type: text/plain\n\n");
    record(to, 7, "said for the log\n", 17, 0);
    char *bytes = strstr(told, "QUERY_STRING=bytes=");
    if (bytes != NULL) {
        static char block[8000];
        memset(block, 'x', sizeof block);
        for (long left = atol(bytes + 19); left > 0; left -= (long)sizeof block)
            record(to, 6, block, left < (long)sizeof block ? (size_t)left : sizeof block, 0);
    } else {
        sprintf(text, "process %d\ninput %zu\n", getpid(), input_length);
        say(to, text);
        say(to, told);
    }
    record(to, 6, "", 0, 0);
    end(to, 0);
    return !has(told, "close");
}

static void converse(int with) {
    unsigned char header[8];
    parameters_length = input_length = 0;
    while (take(with, header, 8)) {
        size_t length = (size_t)header[4] << 8 | header[5];
        char content[65536 + 255];
        if (!take(with, content, length + header[6])) return;
        if (header[1] == 4 && parameters_length + length <= sizeof parameters) {
            memcpy(parameters + parameters_length, content, length);
            parameters_length += length;
        }
        if (header[1] != 5) continue;
        if (length > 0) {
            input_length += length;
            continue;
        }
        if (!answer(with)) return;
        parameters_length = input_length = 0;
    }
}

int main(void) {
    for (;;) {
        int with = accept(0, NULL, NULL);
        if (with < 0) return 1;
        converse(with);
        close(with);
    }
}
