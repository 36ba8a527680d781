//! The picture in the terminal, and what each key changes in it. No I/O: readings and keys go in, frames come out.

use std::net::SocketAddr;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as Cells, Table as Grid};

use super::column::COLUMNS;
use super::fetch::{FetchError, Reading};
use super::table::{Grouping, Row, Sorting, Table};
use super::text;

const KEYS: &str = "q quit  s stages  w workers  \u{2190}\u{2192} sort by  r reverse  \u{2191}\u{2193} scroll";

/// What the terminal shows.
pub(super) struct View {
    address: SocketAddr,
    pub(super) grouping: Grouping,
    pub(super) sorting: Sorting,
    /// Rows above the first that is shown.
    scroll: usize,
    /// Rows that the last frame had room for, and had.
    page_rows: usize,
    row_count: usize,
    /// Columns of the last frame.
    shown: Vec<usize>,
    last: Option<Reading>,
    table: Option<Table>,
    /// Why the last reading failed.
    trouble: Option<String>,
}

impl View {
    /// Nothing but a heading until readings come.
    #[must_use]
    pub(super) fn new(address: SocketAddr, grouping: Grouping, sorting: Sorting) -> View {
        View {
            address,
            grouping,
            sorting,
            scroll: 0,
            page_rows: 0,
            row_count: 0,
            shown: Vec::new(),
            last: None,
            table: None,
            trouble: None,
        }
    }

    /// Takes the next reading. A failure leaves the last numbers on the screen and says so.
    pub(super) fn take(&mut self, reading: Result<Reading, FetchError>) {
        match reading {
            Ok(reading) => {
                self.trouble = None;
                if let Some(last) = &self.last {
                    self.table = Some(Table::new(last, &reading));
                }
                self.last = Some(reading);
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    /// Does what a key asks for; true when that is to end.
    #[must_use]
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => self.grouping.stages = !self.grouping.stages,
            KeyCode::Char('w') => self.grouping.workers = !self.grouping.workers,
            KeyCode::Char('r') => self.sorting.is_descending = !self.sorting.is_descending,
            KeyCode::Left => self.sorting = self.sorting.beside(&self.shown, -1),
            KeyCode::Right => self.sorting = self.sorting.beside(&self.shown, 1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page_rows),
            KeyCode::PageDown => self.scroll += self.page_rows,
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = usize::MAX,
            _ => {}
        }
        // The last page stays full; a number past the end would swallow the next keys.
        self.scroll = self.scroll.min(self.row_count.saturating_sub(self.page_rows));
        false
    }

    /// Draws everything, into whatever room there is.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, middle, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(Line::from(self.heading()).style(Modifier::BOLD), top);
        match &self.trouble {
            Some(trouble) => frame.render_widget(Line::from(trouble.as_str()).style(Modifier::REVERSED), bottom),
            None => frame.render_widget(Line::from(KEYS).style(Modifier::DIM), bottom),
        }
        // Out of `self` meanwhile, so that a frame can note what it showed.
        if let Some(table) = self.table.take() {
            self.draw_table(frame, middle, &table);
            self.table = Some(table);
        }
    }

    fn heading(&self) -> String {
        let mut heading = format!("leat top  {}", self.address);
        let Some(last) = &self.last else { return heading };
        if let Some(connections) = last.page.sum("leat_connections", &[]) {
            heading += &format!("  {connections} connections");
        }
        let workers = last.page.samples("leat_connections").count();
        heading += &format!("  {workers} worker{}", if workers == 1 { "" } else { "s" });
        if self.table.is_none() && self.trouble.is_none() {
            heading += "  (the first numbers come with the next reading)";
        }
        heading
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect, table: &Table) {
        self.shown = text::shown(table, usize::from(area.width));
        let rows = table.rows(self.grouping, self.sorting);
        // The header and the row of all sites together don't scroll.
        self.page_rows = usize::from(area.height).saturating_sub(2);
        self.row_count = rows.len();
        self.scroll = self.scroll.min(self.row_count.saturating_sub(self.page_rows));
        let header = std::iter::once(self.header_cell("SITE", None))
            .chain(self.shown.iter().map(|&at| self.header_cell(COLUMNS[at].heading, Some(at))));
        let header = Cells::new(header.collect::<Vec<_>>());
        let total = table.total().map(|row| self.row(table, row).style(Modifier::BOLD));
        let visible = rows.iter().skip(self.scroll).take(self.page_rows).map(|row| self.row(table, row));
        // As wide as the longest name, so that in a wide terminal the numbers stay beside it.
        let longest = rows
            .iter()
            .map(|row| text::name(&row.subject, table.depth(&row.subject)).chars().count())
            .max()
            .unwrap_or_default();
        let room = usize::from(area.width).saturating_sub(self.shown.len() * text::NUMBER_WIDTH);
        let name = Constraint::Length(longest.max(text::NAME_WIDTH_MIN).min(room) as u16);
        let number = Constraint::Length(text::NUMBER_WIDTH as u16 - 1);
        let widths = std::iter::once(name).chain(self.shown.iter().map(|_| number));
        let grid = Grid::new(total.into_iter().chain(visible), widths.collect::<Vec<_>>());
        frame.render_widget(grid.header(header).column_spacing(1), area);
    }

    fn header_cell(&self, heading: &'static str, column: Option<usize>) -> Cell<'static> {
        let is_sorted = self.sorting.column == column;
        let style = if is_sorted { Modifier::REVERSED | Modifier::BOLD } else { Modifier::BOLD };
        let line = Line::styled(heading, Style::from(style));
        Cell::from(if column.is_some() { line.right_aligned() } else { line })
    }

    fn row(&self, table: &Table, row: &Row) -> Cells<'static> {
        let numbers =
            text::cells(row, &self.shown).into_iter().map(|cell| Cell::from(Line::from(cell).right_aligned()));
        Cells::new(
            std::iter::once(Cell::from(text::name(&row.subject, table.depth(&row.subject))))
                .chain(numbers)
                .collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::Page;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::{Duration, Instant};

    /// A page of `sites` sites, each with ten times its number of requests in every second.
    fn reading(start: Instant, second: u64, sites: u64) -> Result<Reading, FetchError> {
        let mut text = "leat_connections{worker=\"0\"} 7\n".to_owned();
        for site in 0..sites {
            let count = site * 10 * second;
            text += &format!("leat_requests_total{{site=\"site-{site:02}\",status=\"2xx\"}} {count}\n");
            text += &format!("leat_body_bytes_total{{site=\"site-{site:02}\"}} {count}\n");
        }
        let page = Page::parse(&text).expect("the format");
        Ok(Reading { at: start + Duration::from_secs(second), page })
    }

    fn view(sites: u64) -> View {
        let address = ([127, 0, 0, 1], 9180).into();
        let mut view = View::new(address, Grouping::default(), Sorting::BY_NAME);
        let start = Instant::now();
        view.take(reading(start, 1, sites));
        view.take(reading(start, 2, sites));
        view
    }

    fn lines(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
        terminal.draw(|frame| view.draw(frame)).expect("a buffer takes everything");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn press(view: &mut View, code: KeyCode) {
        assert!(!view.handle_key(code.into()));
    }

    #[test]
    fn a_plain_terminal_shows_sites_with_their_numbers() {
        let lines = lines(&mut view(3), 80, 24);
        assert_eq!(lines[0], "leat top  127.0.0.1:9180  7 connections  1 worker");
        assert_eq!(lines[1], "SITE           REQ/S BYTES/S");
        assert_eq!(lines[2], "all               30     30B");
        assert_eq!(lines[5], "site-02           20     20B");
        assert_eq!(lines[23], KEYS);
    }

    #[test]
    fn sorting_moves_over_the_columns_that_are_shown_and_around() {
        let mut view = view(3);
        let first = |view: &mut View| lines(view, 80, 24)[3].split(' ').next().unwrap_or_default().to_owned();
        assert_eq!(first(&mut view), "site-00");
        press(&mut view, KeyCode::Right);
        assert_eq!(first(&mut view), "site-02");
        press(&mut view, KeyCode::Char('r'));
        assert_eq!(first(&mut view), "site-00");
        press(&mut view, KeyCode::Left);
        assert_eq!(view.sorting, Sorting::BY_NAME);
        press(&mut view, KeyCode::Left);
        assert_eq!(view.sorting, Sorting::by("bytes_per_s").expect("a column"));
    }

    #[test]
    fn a_long_table_scrolls_and_stops_at_its_ends() {
        let mut view = view(30);
        let shown = |view: &mut View| lines(view, 40, 10)[3..9].join(" ");
        assert!(shown(&mut view).contains("site-05"));
        press(&mut view, KeyCode::PageDown);
        assert!(shown(&mut view).starts_with("site-06"));
        press(&mut view, KeyCode::End);
        press(&mut view, KeyCode::Down);
        assert!(shown(&mut view).starts_with("site-24") && shown(&mut view).contains("site-29"));
        press(&mut view, KeyCode::Up);
        assert!(shown(&mut view).starts_with("site-23"));
        press(&mut view, KeyCode::Home);
        assert!(shown(&mut view).starts_with("site-00"));
    }

    #[test]
    fn any_size_is_drawn() {
        let mut view = view(30);
        for (width, height) in [(1, 1), (3, 2), (12, 3), (20, 4), (80, 24), (300, 100), (2, 50)] {
            lines(&mut view, width, height);
            press(&mut view, KeyCode::PageDown);
        }
        assert_eq!(lines(&mut view, 20, 4)[1], "SITE           REQ/S");
    }

    #[test]
    fn a_server_that_goes_away_leaves_its_numbers_and_a_word() {
        let mut view = view(1);
        let address = ([127, 0, 0, 1], 9180).into();
        view.take(Err(FetchError::Unreachable { address, error: std::io::ErrorKind::ConnectionRefused.into() }));
        let after = lines(&mut view, 80, 24);
        assert!(after[3].starts_with("site-00") && after[23].contains("connection refused"), "{after:#?}");
        view.take(reading(Instant::now(), 3, 1));
        assert_eq!(lines(&mut view, 80, 24)[23], KEYS);
    }

    #[test]
    fn q_escape_and_control_c_end() {
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [KeyCode::Char('q').into(), KeyCode::Esc.into(), control_c] {
            assert!(view(1).handle_key(key));
        }
        assert!(!view(1).handle_key(KeyCode::Char('c').into()));
    }
}
