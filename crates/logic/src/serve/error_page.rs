//! The page that comes with a status which has nothing else to show.

use bytes::Bytes;

use super::html;
use crate::http::Status;

/// What went wrong, for somebody who looks at a browser; the same for every site, request and machine, so that it can be made once for each
/// status. `text/html; charset=utf-8`.
#[must_use]
pub fn render(status: Status) -> Bytes {
    let (code, reason) = (status.code(), status.reason());
    let title = if reason.is_empty() { code.to_string() } else { format!("{code} {reason}") };
    let mut page = html::head(&title);
    page.push_str(&format!(
        "<main class=\"error\"><p class=\"code\">{code}</p><h1>{reason}</h1><p>{}</p></main>\n",
        advice(code)
    ));
    page.push_str("</body>\n</html>\n");
    page.into()
}

fn advice(code: u16) -> &'static str {
    match code {
        300..=399 => "What you look for is at another address.",
        400 | 417 => "The request wasn\u{2019}t understood. It may have been damaged on its way.",
        403 => "You may not see this.",
        404 => "There is nothing at this address. The link may be old, or have a typing error in it.",
        405 => "This address can only be read.",
        408 => "The request took too long to arrive. Please try again.",
        411 => "The request must say how long its content is.",
        412 => "What you have is not the version that is here now. Please reload.",
        413 => "The request carries more than this server takes.",
        414 => "The address is too long.",
        416 => "The part that was asked for doesn\u{2019}t exist. The file may have become shorter.",
        421 => "This server doesn\u{2019}t know the site by this name.",
        431 => {
            "The request has more header fields than this server takes. Deleting the site\u{2019}s cookies may help."
        }
        503 => "The server can\u{2019}t answer just now. Please try again in a moment.",
        _ if code < 500 => "The request can\u{2019}t be answered.",
        _ => "Something went wrong on the server. It isn\u{2019}t your fault; please try again later.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_page_that_names_it() {
        for status in Status::ALL.iter().filter(|status| status.code() >= 400) {
            let page = render(*status);
            let text = str::from_utf8(&page).unwrap();
            assert!(text.contains(&format!("<title>{} {}</title>", status.code(), status.reason())), "{status:?}");
            assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>\n"));
            assert!(page.len() < 4_096, "{} bytes", page.len());
        }
    }
}
