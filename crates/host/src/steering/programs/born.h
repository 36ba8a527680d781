/* Gives this host's own listener a connection whose handshake it never saw (bpf_sk_assign_tcp_reqsk, Linux 6.9). */
#pragma once
#include "cookie.h"
#include "listener.h"
#include "time_wait.h"
#include "untranslated.h"

struct sock;

struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale;
	__u8 snd_wscale;
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

/* A function of the kernel's, which has another number in each kernel: leat puts it here when it loads this. */
#define ASSIGN_PLACE 0x6c656174
static int (*const bpf_sk_assign_tcp_reqsk)(struct __sk_buff *skb, struct sock *sk, struct bpf_tcp_req_attrs *attrs, int attrs__sz) =
	(void *)ASSIGN_PLACE;

/* Has the kernel measure the round trip by what it sends, and not by what this packet echoes. Its clock goes on from that, so that it would find a millisecond: it would repeat
 * the end of each reply at once to whoever is farther away, and BBR would send no faster than over so short a way for its first ten seconds. */
static __always_inline void forget_echo(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 option = packet->l4 + sizeof(struct tcphdr);
	__be32 kind;
	/* Where an option stands in front of it, the round trip stays wrong: nearly nobody's. */
	if (packet->tcp.doff >= 8 && bpf_skb_load_bytes(skb, option, &kind, sizeof(kind)) == 0 && kind == bpf_htonl(TIMESTAMP_OPTION))
		change_word(skb, packet->l4 + TCP_CHECKSUM_OFFSET, option + 8, 0);
}

/* Returns whether the packet makes a connection at this host's listener, or the one of `service`, as soon as it's let through. */
static __noinline int give_to_listener(struct __sk_buff *skb, const struct packet *packet, const struct handshake *handshake,
				       const struct service *service)
{
	if (!packet || !handshake)
		return 0;
	const struct syn_options *options = &handshake->options;
	__u32 has_scale = options->window_scale <= WINDOW_SCALE_MAX;
	struct bpf_tcp_req_attrs attributes = {
		.rcv_tsval = options->timestamp,
		.rcv_tsecr = options->echo,
		.mss = options->mss,
		.rcv_wscale = has_scale ? handshake->scale : 0,
		.snd_wscale = has_scale ? options->window_scale : 0,
		.wscale_ok = has_scale,
		.sack_ok = options->sack,
		.tstamp_ok = options->has_timestamp,
	};
	int is_foreign = service && service->flags & SERVICE_FOREIGN;
	struct bpf_sock *common = is_foreign ? find_listener(skb, packet, service->listener, service->listener_port)
					     : find_own_listener(skb, packet);
	if (!common)
		return 0;
	int given = 0;
	if (common->state == BPF_TCP_LISTEN) {
		struct sock *listener = (struct sock *)bpf_skc_to_tcp_sock(common);
		if (listener) {
			forget_echo(skb, packet);
			given = bpf_sk_assign_tcp_reqsk(skb, listener, &attributes, sizeof(attributes)) == 0;
		}
	}
	bpf_sk_release(common);
	return given;
}
